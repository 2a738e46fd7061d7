"""What dtype and quantization become: the server argument, which the key holds, and the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from runtime.server.checkpoint import Checkpoint
from runtime.server.declared import MODELOPT
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.gpus import GpuModel

DTYPES = ("bfloat16", "float16", "float32")
METHODS = ("fp8", "modelopt_fp8", "modelopt_fp4", "mxfp4")
_ALIASES = {"half": "float16", "float": "float32"}
_WRITE_BACK = (
    *("DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "Glm4MoeForCausalLM"),
    *("Qwen3MoeForCausalLM", "Qwen3NextForCausalLM"),
)
_BLACKWELL_SERVER = 10
_READ = "DeepseekV3ForCausalLM"


class Weights(NamedTuple):
    """`asked`: the argument; `stored`: how the weights are."""

    asked: str | None
    stored: str | None


def settled_dtype(asked: str, model: Checkpoint) -> str:
    section = model.section("quantization_config")
    if model.architecture == "GptOssForCausalLM" and section.get("quant_method") == "mxfp4":
        return "bfloat16"
    named = _ALIASES.get(asked.lower(), asked.lower())
    if named == "auto":
        gemma = model.model_type.startswith("gemma")
        narrow = model.dtype in ("bfloat16", "float16")
        return model.dtype if narrow else "bfloat16" if gemma else "float16"
    if named not in DTYPES:
        known = ", ".join(("auto", *DTYPES, *_ALIASES))
        raise ConfigError(f"--dtype {asked}: SGLang knows no such type", f"one of {known}")
    return named


def settled_quantization(asked: str | None, model: Checkpoint, gpu: GpuModel) -> Weights:
    """Some families make the checkpoint's method the argument, where none is given."""
    wanted = None if asked == "unquant" else asked
    stored = _stored(wanted, model)
    if model.architecture == "NemotronHForCausalLM" and (stored or "").startswith("modelopt"):
        return Weights(stored, stored)
    writes = model.architecture in _WRITE_BACK and gpu.major == _BLACKWELL_SERVER
    if asked is None and gpu.major == _BLACKWELL_SERVER and stored is None and model.architecture == _READ:
        raise Unsupported("SGLang reads this checkpoint's own headers for fp8: a server answers for it")
    if asked is None and writes:
        return Weights(declared_method(model), stored)
    return Weights(wanted, stored)


def _stored(wanted: str | None, model: Checkpoint) -> str | None:
    found = declared_method(model) or _method(model.quant_file.get("quantization"))
    if wanted is not None and found not in (None, wanted, "modelopt"):
        raise Unsupported(
            f"--quantization {wanted} over a checkpoint quantized by {found}: a server answers for it"
        )
    stored = wanted or found
    if stored is not None and stored not in METHODS:
        raise Unsupported(
            f"quantization {stored} is not one of the core's ({', '.join(METHODS)}): a server answers for it"
        )
    return stored


def declared_method(model: Checkpoint) -> str | None:
    """What config.json itself says, under SGLang's name; ModelOpt's own file is not asked."""
    return _method(model.section("quantization_config") or None)


def _method(section: object) -> str | None:
    if not isinstance(section, Mapping):
        return None
    method = section.get("quant_method")
    if method in (None, "modelopt"):
        nested = section.get("quantization")
        told = (nested if isinstance(nested, Mapping) else section).get("quant_algo")
        algorithm = str(told or "").upper()
        if method is None and algorithm not in MODELOPT:
            raise Unsupported(
                "quantization_config names no method that the core has: a server answers for it"
            )
        return MODELOPT.get(algorithm, method)
    if not isinstance(method, str):
        raise ConfigError(
            f"config.json: quantization_config: quant_method is {method!r:.60}: a name is needed"
        )
    return method.lower()
