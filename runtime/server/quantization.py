"""What dtype and quantization become: the server argument, which the key holds, and the model's own."""

from __future__ import annotations

from runtime.server.choices import Choices
from runtime.server.errors import ConfigError

DTYPES = ("bfloat16", "float16", "float32")
_DTYPE_ALIASES = {"half": "float16", "float": "float32"}
_WRITES_BACK = ("deepseek_v3", "deepseek_v32", "glm_moe_dsa", "qwen3_moe", "glm4_moe")


def settle_dtype(c: Choices) -> None:
    asked = str(c.dtype).lower()
    if asked == "auto":
        declared = c.model.dtype
        dtype = "float16" if declared == "float32" else declared
        if c.model.model_type == "gpt_oss" and c.model.quantization == "mxfp4":
            dtype = "bfloat16"
        c.settle("the checkpoint's own, float32 as float16", dtype=dtype)
        return
    named = _DTYPE_ALIASES.get(asked, asked)
    if named not in DTYPES:
        known = ", ".join(("auto", *DTYPES, *_DTYPE_ALIASES))
        raise ConfigError(f"--dtype {c.asked.dtype}: SGLang knows no such type", f"one of {known}")
    c.settle("its full name", dtype=named)


def settle_quantization(c: Choices) -> None:
    """`quantization` is the argument; `model_quantization` what the model makes of it."""
    if c.quantization == "unquant":
        c.settle("unquant leaves the argument empty", quantization=None)
    elif c.quantization is None and c.gpu.major == 10 and c.model.model_type in _WRITES_BACK:
        c.settle("this family writes the checkpoint's back", quantization=c.model.quantization)
    c.settle("the checkpoint's", model_quantization=c.quantization or c.model.quantization)
