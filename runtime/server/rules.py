"""What SGLang makes of flags nobody set: dtype, quantization, MoE backend and EP size.

A wrong string here is a silent miss, because these strings are part of the cache's key. Explicit flags are
therefore taken word for word; only `auto` and absent flags are resolved.
"""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError
from runtime.server.sizing import release

DEEPSEEK = frozenset(("deepseek_v3", "deepseek_v32", "glm_moe_dsa"))
_WRITES_CHECKPOINT_QUANTIZATION = DEEPSEEK | {"qwen3_moe", "glm4_moe"}
_TRTLLM_BY_DEFAULT = {
    **{kind: {"fp8", "modelopt_fp8", "modelopt_fp4", "modelopt_mixed", None} for kind in DEEPSEEK},
    "qwen3_moe": {"fp8", "modelopt_fp4", None},
    "glm4_moe": {"modelopt_fp4", None},
}
_EP_SPANS_TP = {
    *("megamoe", "flashinfer", "flashinfer_megamoe", "deepep", "deepep_v2"),
    *("mooncake", "nixl", "ascend_fuseep", "mori", "pplx"),
}
_DTYPES = ("bfloat16", "float16", "float32")
_DTYPE_ALIASES = {"half": "float16", "float": "float32"}


def arch_major(arch: str) -> int:
    """`sm90` -> 9, `sm100` -> 10; 0 for something that is no GPU."""
    digits = arch.removeprefix("sm")
    return int(digits[:-1]) if digits.isdigit() and len(digits) > 1 else 0


def resolve_dtype(asked: str | None, model: ModelConfig) -> str:
    if asked is not None and asked != "auto":
        named = _DTYPE_ALIASES.get(asked.lower(), asked.lower())
        if named not in _DTYPES:
            known = ", ".join(("auto", *_DTYPES, *_DTYPE_ALIASES))
            raise ConfigError(f"--dtype {asked}: SGLang knows no such type", f"one of {known}")
        return named
    if model.model_type == "gpt_oss" and model.checkpoint_quantization == "mxfp4":
        return "bfloat16"
    return "float16" if model.dtype == "float32" else model.dtype


def resolve_quantization(asked: str | None, model: ModelConfig, arch: str) -> str | None:
    """The server argument, which is what the key holds: not always what the checkpoint is quantized with."""
    if asked is not None:
        return asked_quantization(asked)
    if arch_major(arch) == 10 and model.model_type in _WRITES_CHECKPOINT_QUANTIZATION:
        return model.checkpoint_quantization
    return None


def asked_quantization(asked: str | None) -> str | None:
    """`unquant` keeps the argument empty; the weights stay what the checkpoint holds."""
    return None if asked == "unquant" else asked


def resolve_moe_runner_backend(
    asked: str | None, a2a: str, quantization: str | None, model: ModelConfig, arch: str, ep: int, sglang: str
) -> str:
    if asked is not None and asked != "auto":
        return asked
    major = arch_major(arch)
    if model.model_type == "gpt_oss":
        return _gpt_oss_backend(quantization, model, major, ep)
    if major == 10 and a2a == "none" and quantization in _trtllm_quantizations(model, sglang):
        return "flashinfer_trtllm"
    if a2a == "flashinfer_megamoe":
        return "flashinfer_megamoe"
    if quantization == "mxfp8":
        return "flashinfer_trtllm"
    if quantization == "modelopt_fp4" and major in (11, 12):
        return "flashinfer_cutlass"
    return "auto"


def resolve_attention_backend(asked: str | None, model: ModelConfig, arch: str) -> str:
    """Not part of the key, but it holds memory of its own."""
    if asked is not None and asked != "auto":
        return asked
    major = arch_major(arch)
    if model.mla is not None and model.mla.indexer is not None:
        return "dsa"
    if major == 9:
        return "fa3"
    if model.mla is not None:
        return "trtllm_mla" if major == 10 else "triton"
    if major == 10:
        return "trtllm_mha"
    return "triton" if model.attention_sinks else "flashinfer"


def draft_moe_runner_backend(target: str) -> str:
    """A draft follows its target, except that megamoe kernels know only the target's weights."""
    return "flashinfer_trtllm" if target == "flashinfer_megamoe" else target


def resolve_ep(asked: int, tp: int, a2a: str) -> int:
    """All-to-all backends spread the experts over the whole TP group, whatever --ep-size says."""
    return tp if a2a in _EP_SPANS_TP else asked


def _trtllm_quantizations(model: ModelConfig, sglang: str) -> set[str | None]:
    known = _TRTLLM_BY_DEFAULT.get(model.model_type, set())
    if model.model_type == "qwen3_moe" and release(sglang) >= (0, 5, 23):
        return known | {"modelopt_mixed"}
    return known


def _gpt_oss_backend(quantization: str | None, model: ModelConfig, major: int, ep: int) -> str:
    if major in (10, 12) and model.checkpoint_quantization == "mxfp4":
        return "flashinfer_mxfp4"
    return "triton_kernel" if ep == 1 and quantization is None else "auto"


def is_set(variable: str | None) -> bool:
    """An environment flag as SGLang reads it."""
    return (variable or "").lower() in ("true", "1", "yes", "y")
