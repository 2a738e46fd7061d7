"""The KV cache's dtype, as far as the checkpoint has a say: a rule a method of quantization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.choices import Choices
from runtime.server.declared import MIXED, is_whole
from runtime.server.families import MINIMAX_NVFP4
from runtime.server.modelopt_mxfp8 import served

_STRING_SCHEMES = ("FP8", "FLOAT8")
_FP8 = "fp8_e4m3"
_BY_SCHEME, _BY_DTYPE = "the checkpoint's KV cache scheme", "the model's dtype"


def settle_kv_dtype(c: Choices) -> None:
    """`auto` is what the checkpoint's scales are for, else the model's own dtype."""
    if c.kv_cache_dtype != "auto":
        return
    if has_fp8_scales(c, c.model, c.model_quantization):
        c.settle(_BY_SCHEME, kv_cache_dtype=_FP8)
    else:
        c.settle(_BY_DTYPE, kv_cache_dtype=c.dtype)


def draft_kv_dtype(c: Choices, draft: Checkpoint, method: str | None, dtype: str) -> str:
    """As asked for it alone or for both, or as its checkpoint has it; once what its target's says became the
    argument."""
    if c.speculative_draft_kv_cache_dtype not in (None, "auto"):
        return str(c.speculative_draft_kv_cache_dtype)
    told = c.reasons.get("kv_cache_dtype", ())
    rule = told[-1].rule if told else ""
    is_targets = rule == _BY_SCHEME and c.release.drafts_keep_targets_scheme
    follows = c.speculative_draft_kv_cache_dtype is None
    if follows and (is_targets or rule not in (_BY_SCHEME, _BY_DTYPE)):
        return str(c.kv_cache_dtype)
    return _FP8 if has_fp8_scales(c, draft, method) else dtype


def has_fp8_scales(c: Choices, model: Checkpoint, method: str | None) -> bool:
    if method not in c.release.reads_kv_scheme_of:
        return False
    if method == MINIMAX_NVFP4:  # its class has no other
        return True
    section = model.section("quantization_config", within_text=False)
    if method == "compressed-tensors":
        return _is_static_fp8(section.get("kv_cache_scheme"))
    if method in ("fp8", "mxfp8"):
        return _names_fp8(served(section).get("kv_cache_quant_algo"))
    of_file = method == MIXED and c.release.mixed_by_layers and not is_whole(section)
    if "quant_algo" not in section or of_file:
        nested = model.quant_file if of_file else section or model.quant_file
        return _names_fp8(_mapping(nested.get("quantization")).get("kv_cache_quant_algo"))
    return _modelopt(c, section, str(method))


def _modelopt(c: Choices, section: Mapping[str, Any], method: str) -> bool:
    scheme = section.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return scheme.get("type") == "float" and scheme.get("num_bits") == 8
    if isinstance(scheme, str) and method == "modelopt_fp4":
        return scheme.strip().upper() in _STRING_SCHEMES
    return c.release.reads_flat_kv_algorithm and _names_fp8(section.get("kv_cache_quant_algo"))


def _is_static_fp8(scheme: Any) -> bool:
    found = _mapping(scheme)
    fp8 = found.get("type") == "float" and found.get("num_bits") == 8
    one_scale = found.get("strategy") == "tensor" and found.get("symmetric", True)
    return bool(fp8 and one_scale and not found.get("dynamic"))


def _names_fp8(algorithm: Any) -> bool:
    return isinstance(algorithm, str) and algorithm.upper() == "FP8"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
