"""How much memory a server keeps free, and how much it prefills at once: srt/arg_groups/memory_hook.py"""

from typing import NamedTuple

from runtime.server.asked import Asked
from runtime.server.choices.graphs import Captured
from runtime.server.errors import ConfigError
from runtime.server.gpus import GpuModel

_LARGE_MIB, _LEAST_MIB = 61440, 10240
_MIB_A_TOKEN, _FEWEST_TOKENS = 1.5, 2048
_MLA_GRAPHS_MIB = 1536
_WITHOUT_GPU = 0.95


class GpuDefaults(NamedTuple):
    chunked_prefill_size: int
    decode_graph_max_bs: int


def gpu_defaults(gpu_mib: float, tp: int) -> GpuDefaults:
    wide = tp >= 4
    if not gpu_mib:
        return GpuDefaults(4096, 160)
    if gpu_mib < 20480:
        return GpuDefaults(2048, 8)
    if gpu_mib < 35840:
        return GpuDefaults(4096, 160 if wide else 48)
    if gpu_mib < _LARGE_MIB:
        return GpuDefaults(4096, 160 if wide else 32)
    if gpu_mib < 163840:
        return GpuDefaults(8192, 512 if wide else 256)
    return GpuDefaults(16384, 512)


def mem_fraction(
    asked: Asked, gpu: GpuModel, chunk: int, attn_dp: int, graphs: Captured, is_mla: bool
) -> float:
    share = asked.mem_fraction_static
    if share is not None:
        if not 0 < share < 1:
            raise ConfigError(
                f"--mem-fraction-static {share} is no share of the GPU's memory", "between 0 and 1"
            )
        return share
    total = gpu.memory_mib
    if not total:
        return _WITHOUT_GPU
    return round((total - _reserved(asked, gpu, chunk, attn_dp, graphs, is_mla)) / total, 3)


def _reserved(asked: Asked, gpu: GpuModel, chunk: int, attn_dp: int, graphs: Captured, is_mla: bool) -> float:
    """Return the MiB that are kept for everything besides the weights and the KV cache."""
    mib = 512 + max(chunk if chunk > 0 else asked.max_prefill_tokens, _FEWEST_TOKENS) * _MIB_A_TOKEN
    mib += asked.tp_size * asked.pp_size / 8 * 1024
    top = graphs.decode_top
    if graphs.decode:
        mib += top * 2
    if attn_dp > 1:
        mib += top * attn_dp * (4.5 if top > 300 else 3)
    if graphs.prefill:
        mib += _MLA_GRAPHS_MIB if is_mla else len(graphs.prefill) * 8
    return max(mib, _LEAST_MIB) if gpu.memory_mib > _LARGE_MIB else mib
