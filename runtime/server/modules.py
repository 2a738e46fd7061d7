"""Which of FlashInfer's compiled modules a server loads, as far as that was read in SGLang and FlashInfer.

A module here is one that a start, or its first request, would compile. What a server also takes from
FlashInfer, and nobody read which modules that is, is named instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.attention_modules import attention_modules
from runtime.server.config import ModelConfig
from runtime.server.flashinfer import FlashInfer
from runtime.server.module import Module
from runtime.server.shape import Server


@dataclass(frozen=True, slots=True)
class Modules:
    known: tuple[Module, ...]
    unknown: tuple[str, ...]


# srt/layers/layernorm.py and sgl_kernel/elementwise.py: every RMSNorm of half precision, but those that
# srt/models/transformers.py makes, of another kernel
_NORM = Module(
    "norm",
    "norm:gen_norm_module",
    "norms, where nvidia-cutlass-dsl is not installed",
    headers=("cublasLt.h", "curand_kernel.h"),
)
# srt/layers/sampler.py and sgl_kernel/sampling.py: the first request that does not take the best token
_SAMPLING = Module("sampling", "sampling:gen_sampling_module", "sampling", headers=("curand_kernel.h",))
# flashinfer/autotuner: the clock of a measurement starts behind a kernel that waits
_CLOCK = Module(
    "trtllm_utils", "tllm_utils:gen_trtllm_utils_module", "the tuner's clock", headers=("cublasLt.h",)
)
# srt/layers/flashinfer_comm_fusion.py: trtllm's workspace is filled by it, and so is each all-reduce
_ALL_REDUCE = Module("trtllm_comm", "comm:gen_trtllm_comm_module", "the all-reduce that is fused with norms")

_CUTLASS_EXPERTS = {"sm89": "89", "sm90": "90", "sm100": "100", "sm103": "103", "sm120": "120"}
_EXPERTS_HEADERS = ("cublasLt.h", "curand_kernel.h", "nvrtc.h")
_OWN_EXPERTS = ("auto", "triton", "triton_kernel", "deep_gemm", "cutlass", "marlin", "torch")
_HOPPER = 9
_BY_THE_GPU_ITSELF = "H20"  # flashinfer/jit/fused_moe.py: another module where a GPU has 78 multiprocessors


def modules_of(server: Server, model: ModelConfig | None, flashinfer: FlashInfer) -> Modules:
    """`model` is None where this runtime does not know its layers; `flashinfer`, which names them, is the
    deployment's."""
    norms = () if model is not None and model.by_transformers else (_NORM,)
    known = [*norms, *([_SAMPLING] if server.asked.sampling_backend != "pytorch" else ())]
    unknown = list(_unread(server, model))
    attention = attention_modules(server, model, flashinfer)
    for found in (_experts(server, model), attention, _all_reduce(server)):
        for one in found:
            (known if isinstance(one, Module) else unknown).append(one)  # type: ignore[arg-type]
    if server.tunes:
        known.append(_CLOCK)
    return Modules(tuple(dict.fromkeys(known)), tuple(dict.fromkeys(unknown)))


def _unread(server: Server, model: ModelConfig | None) -> Iterator[str]:
    if model is None:
        yield f"a model of {server.config_class}, whose layers are not known here"
        return
    if server.weights_quantization is not None and not _is_multiplied_elsewhere(server, model):
        yield f"layers quantized by {server.weights_quantization}"
    if server.asked.dcp_size > 1:
        yield "decode context parallelism"
    if model.recurrent is not None:
        yield "recurrent layers"
    if model.compressed is not None:
        yield "compressed attention"
    if model.encoder is not None:
        yield "the encoder"
    if model.moe is not None and model.moe.correction_bias:
        yield "routing with a correction bias"
    if server.speculative is not None:
        yield f"speculation by {server.speculative.algorithm}"
    if server.asked.enable_lora or server.asked.lora_paths:
        yield "LoRA"


def _is_multiplied_elsewhere(server: Server, model: ModelConfig) -> bool:
    """Fp8 in blocks on Hopper, by DeepGEMM, CUTLASS or Triton, where no kernel of FlashInfer's is chosen:
    dispatch_w8a8_block_fp8_linear of srt/layers/quantization/fp8_utils.py, in every release."""
    in_blocks = server.weights_quantization == "fp8" and model.quantization_block is not None
    chosen = server.asked.fp8_gemm_runner_backend.startswith("flashinfer")
    return in_blocks and server.gpu.major == _HOPPER and not chosen


def _experts(server: Server, model: ModelConfig | None) -> Iterator[Module | str]:
    if model is None or model.moe is None:
        return
    if server.moe_a2a_backend == "flashinfer":
        yield "FlashInfer's all-to-all"
    backend, arch = server.moe_runner_backend, server.gpu.arch
    if backend in _OWN_EXPERTS:
        return
    if backend != "flashinfer_cutlass" or arch not in _CUTLASS_EXPERTS:
        yield f"experts by {backend} on {arch}"
    elif server.gpu.name == _BY_THE_GPU_ITSELF:
        yield f"experts by {backend} on an {server.gpu.name}, whose module FlashInfer names by the GPU itself"
    else:
        number = _CUTLASS_EXPERTS[arch]
        maker = f"fused_moe:gen_cutlass_fused_moe_sm{number}_module"
        yield Module(f"fused_moe_{number}", maker, "experts", headers=_EXPERTS_HEADERS)


def _all_reduce(server: Server) -> Iterator[Module | str]:
    """On Hopper what is not chosen, and `auto`, is trtllm's: _resolve_backend, and before 0.5.14 always."""
    if not server.fuses_all_reduce:
        return
    by_trtllm = server.asked.flashinfer_allreduce_fusion_backend in (None, "auto", "trtllm")
    if server.gpu.major == _HOPPER and server.asked.nnodes == 1 and by_trtllm:
        yield _ALL_REDUCE
    else:
        yield f"{_ALL_REDUCE.used_by} on {server.gpu.arch}"
