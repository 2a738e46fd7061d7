"""The resolved dtype and quantization: the server argument, which is in the key, and the weights' own."""

from __future__ import annotations

from runtime.server.checkpoint import Checkpoint
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel
from runtime.server.quantized import method_of

DTYPES = ("bfloat16", "float16", "float32")
_ALIASES = {"half": "float16", "float": "float32"}
_BLACKWELL_SERVER = 10


def settled_dtype(asked: str, family: Family, model: Checkpoint, weights: Weights) -> str:
    if weights.declared == "mxfp4":
        return "bfloat16"
    named = _ALIASES.get(asked.lower(), asked.lower())
    if named == "auto":
        return model.dtype if model.dtype in ("bfloat16", "float16") else family.dtype_of_float32
    if named not in DTYPES:
        known = ", ".join(("auto", *DTYPES, *_ALIASES))
        raise ConfigError(f"--dtype {asked}: SGLang knows no such type", f"one of {known}")
    return named


def settled_quantization(asked: str | None, family: Family, model: Checkpoint, gpu: GpuModel) -> Weights:
    """Return the quantization. Without an argument, some families use the checkpoint's method as one."""
    wanted, on_blackwell = None if asked == "unquant" else asked, gpu.major == _BLACKWELL_SERVER
    declared = method_of(model.get("quantization_config"))
    stored = declared or method_of(model.quant_file.get("quantization"))
    if wanted is not None and stored != wanted:
        over = "a plain checkpoint" if stored is None else f"a checkpoint quantized by {stored}"
        raise Unsupported(f"--quantization {wanted} over {over}: a server answers for it")
    if family.writes_modelopt and (stored or "").startswith("modelopt"):
        return Weights(stored, stored, declared)
    if asked is None and on_blackwell and stored is None and family.reads_headers:
        raise Unsupported("SGLang reads this checkpoint's own headers for fp8: a server answers for it")
    if asked is None and on_blackwell and family.writes_method:
        return Weights(declared, stored, declared)
    return Weights(wanted, stored, declared)
