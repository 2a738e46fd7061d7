"""Which of FlashInfer's compiled modules a server loads, as far as that was read in SGLang and FlashInfer.

A module here is one that a start, or its first request, would compile. What a server also takes from
FlashInfer, and nobody read which modules that is, is named instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runtime.server.config import ModelConfig
from runtime.server.gpus import arch_major
from runtime.server.layer_config import AttentionConfig
from runtime.server.shape import Server

Argument = str | int | bool


@dataclass(frozen=True, slots=True)
class Module:
    """`maker` is FlashInfer's own function, MODULE:NAME below `flashinfer.jit`; a word of its arguments that
    names a dtype stands for torch's. `headers` are CUDA's, beside those of its runtime."""

    name: str
    maker: str
    used_by: str
    arguments: tuple[Argument, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Modules:
    known: tuple[Module, ...]
    unknown: tuple[str, ...]


# srt/layers/layernorm.py and sgl_kernel/elementwise.py: every RMSNorm of half precision
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
# srt/layers/attention/flashinfer_backend.py: a prompt whose beginning is cached
_CASCADE = Module("cascade", "cascade:gen_cascade_module", "FlashInfer's attention")

# srt/layers/flashinfer_comm_fusion.py: trtllm's workspace is filled by it, and so is each all-reduce
_ALL_REDUCE = Module("trtllm_comm", "comm:gen_trtllm_comm_module", "the all-reduce that is fused with norms")

_CUTLASS_EXPERTS = {"sm89": "89", "sm90": "90", "sm100": "100", "sm103": "103", "sm120": "120"}
_NOT_FLASHINFER = ("fa3", "fa4", "triton", "torch_native", "flex_attention", "flashmla", "cutlass_mla")
_EXPERTS_HEADERS = ("cublasLt.h", "curand_kernel.h", "nvrtc.h")
_OWN_EXPERTS = ("auto", "triton", "triton_kernel", "deep_gemm", "cutlass", "marlin", "torch")
_SHORT = {"bfloat16": "bf16", "float16": "f16"}
_SHORT_FP8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_FP8 = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}  # as --kv-cache-dtype and as torch say it
_HOPPER = 9
_FA3_HEADS = (64, 128, 256)
_GROUP_FOR_TENSOR_CORES = 4  # query heads that share one of keys
_BY_THE_GPU_ITSELF = "H20"  # flashinfer/jit/fused_moe.py: another module where a GPU has 78 multiprocessors


def modules_of(server: Server, model: ModelConfig | None) -> Modules:
    """`model` is None where this runtime does not know its layers."""
    known = [_NORM, *([_SAMPLING] if server.asked.sampling_backend != "pytorch" else ())]
    unknown = list(_unread(server, model))
    for found in (_experts(server, model), _attention(server, model), _all_reduce(server)):
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
    if model.recurrent is not None:
        yield "recurrent layers"
    if model.is_mla:
        yield "latent attention"
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


def _attention(server: Server, model: ModelConfig | None) -> Iterator[Module | str]:
    phases = {server.prefill_attention_backend, server.decode_attention_backend}
    for backend in sorted(phases - {"flashinfer", *_NOT_FLASHINFER}):
        yield f"attention by {backend}"
    if "flashinfer" not in phases or model is None or model.is_mla:
        return
    plain = all(_is_plain(one) for one in model.attention.values())
    if not plain or server.dtype not in _SHORT or server.kv_cache_dtype not in (server.dtype, *_FP8):
        yield "attention by flashinfer with windows, capped scores, narrow values, or a cache of another type"
    elif arch_major(server.gpu.arch) not in (8, 9):
        yield f"attention by flashinfer on {server.gpu.arch}"
    else:
        for one in model.attention.values():
            yield from _plain_attention(server, one)
        yield _CASCADE


def _is_plain(one: AttentionConfig) -> bool:
    narrower = one.value_width != one.head_dim
    return one.window is one.score_cap is one.chunk is None and not one.sinks and not narrower


def _plain_attention(server: Server, one: AttentionConfig) -> Iterator[Module]:
    """Its wrappers: ragged prefills, of keys that are not in the cache yet, choose by the GPU; paged ones and
    decoding on tensor cores, as always of an fp8 cache, take FA2."""
    kept = _FP8.get(server.kv_cache_dtype, server.dtype)
    on_hopper = server.gpu.arch == "sm90" and one.head_dim in _FA3_HEADS
    yield _batch("prefill", "fa2", server.dtype, kept, one.head_dim)
    yield _batch("prefill", "fa3" if on_hopper else "fa2", server.dtype, server.dtype, one.head_dim)
    ranks = server.parallel.attn_tp
    group = (one.num_heads // ranks) // max(1, one.num_kv_heads // ranks)
    on_cores = kept in _SHORT_FP8 or server.asked.enable_deterministic_inference
    if group < _GROUP_FOR_TENSOR_CORES and not on_cores:
        yield _batch("decode", "", server.dtype, kept, one.head_dim)


def _batch(phase: str, by: str, dtype: str, kept: str, head: int) -> Module:
    """`kept`: the type of the cache."""
    short, short_kept = _SHORT[dtype], {**_SHORT, **_SHORT_FP8}[kept]
    name = (
        f"batch_{phase}_with_kv_cache_dtype_q_{short}_dtype_kv_{short_kept}_dtype_o_{short}_dtype_idx_i32_"
        f"head_dim_qk_{head}_head_dim_vo_{head}_posenc_0_use_swa_False_use_logits_cap_False"
    )
    arguments: tuple[Argument, ...] = (dtype, kept, dtype, "int32", head, head, 0, False, False)
    if phase == "prefill":
        name += "_f16qk_False" + ("_sm90" if by == "fa3" else "")
        arguments = (by, *arguments, False)
    maker = f"attention:gen_batch_{phase}_module"
    return Module(name, maker, "FlashInfer's attention", arguments)
