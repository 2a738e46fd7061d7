"""FlashInfer's modules of attention: what SGLang's backends plan, and what FlashInfer loads for that.

srt/layers/attention/flashinfer_backend.py and flashinfer_mla_backend.py of every release; prefill.py,
decode.py and mla/ of the FlashInfers that they pin.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.server.config import ModelConfig
from runtime.server.flashinfer import FlashInfer
from runtime.server.gpus import arch_major
from runtime.server.layer_config import AttentionConfig, MLAConfig
from runtime.server.module import Argument, Module
from runtime.server.shape import Server

_USED_BY = "FlashInfer's attention"
# A prompt whose beginning is cached
_CASCADE = Module("cascade", "cascade:gen_cascade_module", _USED_BY)
# On Blackwell, srt/layers/attention/trtllm_*_backend.py: what it runs are cubins, found when it is asked
TRTLLM = Module(
    "fmha_gen", "attention:gen_trtllm_gen_fmha_module", "attention by trtllm_*", headers=("cublasLt.h",)
)
_CUBINS = "the cubins that fmha_gen downloads as it needs them"

_OTHERS = ("fa3", "fa4", "triton", "torch_native", "flex_attention")
# Their prefills of latent attention are FlashInfer's: both classes inherit from its backend
_PREFILLED_BY_FLASHINFER = ("flashinfer", "flashmla", "cutlass_mla")
_SHORT = {"bfloat16": "bf16", "float16": "f16"}
_SHORT_FP8 = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_FP8 = {"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}  # as --kv-cache-dtype and as torch say it
_FA3_HEADS = ((64, 64), (128, 128), (256, 256), (192, 128))  # a query's, and a value's
_CUTLASS_HEADS = ((64, 64), (128, 128), (192, 128))
_LATENT = (512, 64)  # what FlashInfer's kernels of latent attention are written for: rank, and rope
_GROUP_FOR_TENSOR_CORES = 4  # query heads that share one of keys
_AMPERE, _BLACKWELL = 8, 10

Found = Iterator[Module | str]


def attention_modules(server: Server, model: ModelConfig | None, flashinfer: FlashInfer) -> Found:
    """What nobody read is named instead."""
    if model is not None and not model.attention:
        return
    phases = {server.prefill_attention_backend, server.decode_attention_backend}
    known = {*_OTHERS, *_PREFILLED_BY_FLASHINFER}
    for backend in sorted(phases - known):
        yield from _by_trtllm(server, model, backend)
    if model is None or not phases & {*_PREFILLED_BY_FLASHINFER}:
        return
    if arch_major(server.gpu.arch) < _AMPERE:
        yield f"attention by flashinfer on {server.gpu.arch}"
    elif model.mla is not None:
        yield from _latent(server, model.mla, flashinfer)
    elif "flashinfer" in phases:
        yield from _plain(server, model, flashinfer)


def _by_trtllm(server: Server, model: ModelConfig | None, backend: str) -> Found:
    """Latent attention's prefills are FlashInfer's plain ones while they are captured."""
    on_its_gpu = arch_major(server.gpu.arch) == _BLACKWELL and server.dtype in _SHORT
    if not on_its_gpu or backend not in ("trtllm_mha", "trtllm_mla") or model is None:
        yield f"attention by {backend}"
        return
    yield TRTLLM
    yield _CUBINS
    if backend == "trtllm_mla" or server.kv_cache_dtype not in (server.dtype, *_FP8):
        yield f"attention by {backend}, but for {TRTLLM.name}"


def _plain(server: Server, model: ModelConfig, flashinfer: FlashInfer) -> Found:
    kinds = tuple(model.attention.values())
    sizes = {(one.head_dim, one.num_heads, one.num_kv_heads) for one in kinds}
    if any(one.sinks or one.chunk is not None or one.value_width != one.head_dim for one in kinds):
        yield "attention by flashinfer with sinks, narrow values, or in chunks"
    elif server.dtype not in _SHORT or server.kv_cache_dtype not in (server.dtype, *_FP8):
        yield "attention by flashinfer with keys and values of another type"
    elif len(sizes) > 1:
        yield "attention by flashinfer with heads of several sizes"
    else:
        kept = _FP8.get(server.kv_cache_dtype, server.dtype)
        for one in kinds:
            if server.prefill_attention_backend == "flashinfer":
                yield from _prefills(server, model, one, kept, flashinfer)
            if server.decode_attention_backend == "flashinfer":
                yield _decode(server, one, kept, flashinfer)


def _prefills(
    server: Server, model: ModelConfig, one: AttentionConfig, kept: str, flashinfer: FlashInfer
) -> Found:
    """Paged ones take FA2; ragged ones, of keys that are not in the cache yet, choose by the GPU. Scores are
    capped when they run, and no plan is told of it."""
    sizes = one.head_dim, one.head_dim
    paged_alone = (
        model.encoder is not None or server.asked.enable_mis or server.asked.enable_deterministic_inference
    )
    yield prefill_module(flashinfer, "fa2", server.dtype, kept, sizes)
    if one.window is not None and server.release.plans_windows and (paged_alone or server.compiles_prefills):
        yield prefill_module(flashinfer, "fa2", server.dtype, kept, sizes, windowed=True)
    if not paged_alone:
        yield _ragged(server, sizes, _plain_ragged_by(server, sizes), flashinfer)
        yield _CASCADE


def _plain_ragged_by(server: Server, sizes: tuple[int, int]) -> str:
    """The backend that SGLang asks for."""
    if arch_major(server.gpu.arch) != _BLACKWELL:
        return "auto"
    if server.release.cutlass_prefills_by_heads:
        return "cutlass" if sizes in _CUTLASS_HEADS and not server.compiles_prefills else "fa2"
    return "auto" if server.compiles_prefills else "cutlass"


def _ragged(server: Server, sizes: tuple[int, int], by: str, flashinfer: FlashInfer) -> Module | str:
    major = arch_major(server.gpu.arch)
    if by == "auto" and major > 9 and flashinfer.ragged_by_batch:
        return f"ragged prefills by flashinfer on {server.gpu.arch}, by a backend of each batch's own"
    if by == "auto":
        takes_fa3 = sizes in _FA3_HEADS or not flashinfer.checks_fa3_heads
        by = "fa3" if server.gpu.arch == "sm90" and takes_fa3 else "fa2"
    return prefill_module(flashinfer, by, server.dtype, server.dtype, sizes)


def _decode(server: Server, one: AttentionConfig, kept: str, flashinfer: FlashInfer) -> Module:
    """On tensor cores, as always of an fp8 cache, by the paged prefills' module."""
    ranks = server.parallel.attn_tp
    group = (one.num_heads // ranks) // max(1, one.num_kv_heads // ranks)
    sizes = one.head_dim, one.head_dim
    on_cores = kept in _SHORT_FP8 or server.asked.enable_deterministic_inference
    if group >= _GROUP_FOR_TENSOR_CORES or on_cores:
        return prefill_module(flashinfer, "fa2", server.dtype, kept, sizes)
    return decode_module(server.dtype, kept, one.head_dim)


def _latent(server: Server, mla: MLAConfig, flashinfer: FlashInfer) -> Found:
    """A cache of any type is read as the model's own; what is not absorbed is prefilled as plain."""
    prefills = server.prefill_attention_backend in _PREFILLED_BY_FLASHINFER
    if not prefills and server.decode_attention_backend != "flashinfer":
        return
    major = arch_major(server.gpu.arch)
    if server.dtype not in _SHORT or (mla.kv_lora_rank, mla.qk_rope_head_dim) != _LATENT:
        yield "latent attention by flashinfer of another type or size"
        return
    if prefills:
        by = "cutlass" if major == _BLACKWELL else "auto"
        yield _ragged(server, (mla.qk_head_dim, mla.v_head_dim), by, flashinfer)
    if major > 9 and flashinfer.latent_by_batch:
        yield f"latent attention by flashinfer on {server.gpu.arch}, by a backend of each batch's own"
    else:
        yield latent_module(flashinfer, "fa3" if server.gpu.arch == "sm90" else "fa2", server.dtype)


def latent_module(flashinfer: FlashInfer, by: str, dtype: str) -> Module:
    short, (rank, rope) = _SHORT[dtype], _LATENT
    name = (
        f"batch_mla_attention_dtype_q_{short}_dtype_kv_{short}_dtype_o_{short}_dtype_idx_i32_"
        f"head_dim_ckv_{rank}_head_dim_kpe_{rope}_profiler_False"
    )
    name += ("_planabi2" if flashinfer.strided_prefills else "") + ("_sm90" if by == "fa3" else "")
    arguments = (by, dtype, dtype, dtype, "int32", rank, rope, False)
    return Module(name, "attention:gen_batch_mla_module", _USED_BY, arguments)


def decode_module(dtype: str, kept: str, head: int) -> Module:
    arguments = _arguments(dtype, kept, (head, head))
    name = f"batch_decode_with_kv_cache_{_told(arguments)}"
    return Module(name, "attention:gen_batch_decode_module", _USED_BY, arguments)


def prefill_module(
    flashinfer: FlashInfer, by: str, dtype: str, kept: str, sizes: tuple[int, int], windowed: bool = False
) -> Module:
    """`kept`: the type of keys and values."""
    arguments = _arguments(dtype, kept, sizes, windowed)
    if by == "cutlass":
        return Module("fmha_cutlass_sm100a", "attention:gen_fmha_cutlass_sm100a_module", _USED_BY, arguments)
    name = f"batch_prefill_with_kv_cache_{_told(arguments)}_f16qk_False" + ("_sm90" if by == "fa3" else "")
    maker = "attention:gen_batch_prefill_module"
    if by == "fa2" and flashinfer.strided_prefills:
        name, maker = f"{name}_kv_stride_equal", "attention.modules:_gen_batch_prefill_primary_module"
    return Module(name, maker, _USED_BY, (by, *arguments, False))


def _arguments(dtype: str, kept: str, sizes: tuple[int, int], windowed: bool = False) -> tuple[Argument, ...]:
    return dtype, kept, dtype, "int32", *sizes, 0, windowed, False


def _told(arguments: tuple[Argument, ...]) -> str:
    queries, kept, answers, _, heads, values, positions, windowed, capped = arguments
    short = {**_SHORT, **_SHORT_FP8}
    return (
        f"dtype_q_{short[str(queries)]}_dtype_kv_{short[str(kept)]}_dtype_o_{short[str(answers)]}_dtype_idx_i32_"
        f"head_dim_qk_{heads}_head_dim_vo_{values}_posenc_{positions}_use_swa_{windowed}_use_logits_cap_{capped}"
    )
