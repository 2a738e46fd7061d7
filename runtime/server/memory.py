"""What a server keeps free of weights and KV cache, and the sizes that follow from the GPU's memory."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.choices import Choices
from runtime.server.graphs import settle_graph_sizes


@dataclass(frozen=True, slots=True)
class GpuDefaults:
    chunked_prefill_size: int
    decode_graph_max_bs: int


def settle_memory(c: Choices) -> None:
    defaults = gpu_defaults(c.gpu.memory_mib, c.tp_size)
    why = f"a GPU of {c.gpu.memory_mib} MiB"
    if c.chunked_prefill_size is None:
        c.settle(why, chunked_prefill_size=defaults.chunked_prefill_size)
    if c.decode.max_bs is None:
        c.decode.max_bs = defaults.decode_graph_max_bs
        if c.max_running_requests is not None:
            c.decode.max_bs = min(c.decode.max_bs, c.max_running_requests)
    settle_graph_sizes(c)
    if c.mem_fraction_static is None:
        c.settle(why, mem_fraction_static=_fraction(c))


def gpu_defaults(gpu_mib: float, tp: int) -> GpuDefaults:
    wide = tp >= 4
    if not gpu_mib:
        return GpuDefaults(4096, 160)
    if gpu_mib < 20 * 1024:
        return GpuDefaults(2048, 8)
    if gpu_mib < 35 * 1024:
        return GpuDefaults(4096, 160 if wide else 48)
    if gpu_mib < 60 * 1024:
        return GpuDefaults(4096, 160 if wide else 32)
    if gpu_mib < 160 * 1024:
        return GpuDefaults(8192, 512 if wide else 256)
    return GpuDefaults(16384, 512)


def _fraction(c: Choices) -> float:
    total = c.gpu.memory_mib
    if not total:
        return 0.95
    chunk = c.chunked_prefill_size if c.chunked_prefill_size > 0 else c.max_prefill_tokens
    reserved = 512 + max(chunk, 2048) * 1.5 + c.tp_size * c.pp_size / 8 * 1024 + _graphs_mib(c)
    if total > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if c.moe_a2a_backend == "deepep" and c.decode.is_on and c.disaggregation_mode != "prefill":
        reserved += 2048
    return round((total - reserved) / total, 3)


def _graphs_mib(c: Choices) -> float:
    assert c.decode.max_bs is not None and c.prefill.sizes is not None
    reserved = 0.0
    if c.disaggregation_mode != "prefill":
        if c.decode.is_on:
            reserved += c.decode.max_bs * 2
        if c.attn_dp_size > 1:
            reserved += c.decode.max_bs * c.attn_dp_size * (4.5 if c.decode.max_bs > 300 else 3)
    if c.disaggregation_mode != "decode" and c.prefill.is_on:
        reserved += 1536 if c.model.is_mla else len(c.prefill.sizes) * 8
    return reserved
