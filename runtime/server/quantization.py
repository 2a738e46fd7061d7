"""What dtype and quantization become: the server argument, which the key holds, and the model's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.checkpoint import Checkpoint
from runtime.server.choices import Choices, Reason
from runtime.server.declared import MODELOPTS
from runtime.server.errors import ConfigError
from runtime.server.expert_weights import packs_nvfp4_beside_mxfp8
from runtime.server.families import (
    FIXED_BFLOAT16,
    GEMMA4,
    GEMMA_WRITES_BACK_SINCE,
    GPT_OSS,
    MINIMAX3,
    MINIMAX_NVFP4,
    NEMOTRON,
    WRITE_BACKS,
)
from runtime.server.releases import Release

DTYPES = ("bfloat16", "float16", "float32")
_DTYPE_ALIASES = {"half": "float16", "float": "float32"}
_FP4_LAYERS = ("NVFP4", "W4A16_NVFP4")
_MARLIN_GROUPS = (-1, 32, 64, 128)
# srt/layers/quantization/__init__.py
_METHODS = frozenset(
    (
        *("fp8", "mxfp8", "minimax_m3_nvfp4", "blockwise_int8", *MODELOPTS, "nvfp4_online", "w8a8_int8"),
        *("w8a8_fp8", "awq", "awq_marlin", "bitsandbytes", "gguf", "gptq", "gptq_marlin", "moe_wna16"),
        *("compressed-tensors", "qoq", "w4afp8", "petit_nvfp4", "fbgemm_fp8", "quark", "quark_mxfp4"),
        *("auto-round", "auto-round-int8", "modelslim", "quark_int4fp8_moe", "humming", "mxfp_w4a8"),
        "mxfp4",
    )
)
# get_config_filenames of srt/layers/quantization: where a method looks, if config.json tells nothing.
OWN_FILES = {
    "awq": ("quant_config.json", "quantize_config.json"),
    **dict.fromkeys(("awq_marlin", "gptq", "gptq_marlin", "marlin", "moe_wna16"), ("quantize_config.json",)),
    "auto-round": ("quantization_config.json",),
}
# Told by these names, SGLang makes no Marlin of them.
_READ_ANEW = ("awq", "gptq")
# Requested over a checkpoint's own method, which is then not looked for.
_REQUANTIZES = ("nvfp4_online", "quark_mxfp4")


def settle_dtype(c: Choices) -> None:
    found = settled_dtype(c.dtype, c.model)
    c.settle(found.rule, dtype=found.value)


def settled_dtype(asked: str, model: Checkpoint) -> Reason:
    if model.architecture in FIXED_BFLOAT16 or (
        model.architecture in GPT_OSS and model.mapping("quantization_config").get("quant_method") == "mxfp4"
    ):
        return Reason("bfloat16", f"{model.architecture} runs in nothing else")
    named = _DTYPE_ALIASES.get(asked.lower(), asked.lower())
    if named == "auto":
        return _of_checkpoint(model)
    if named not in DTYPES:
        known = ", ".join(("auto", *DTYPES, *_DTYPE_ALIASES))
        raise ConfigError(f"--dtype {asked}: SGLang knows no such type", f"one of {known}")
    return Reason(named, "its full name")


def _of_checkpoint(model: Checkpoint) -> Reason:
    declared = _DTYPE_ALIASES.get(model.dtype, model.dtype)
    if declared in ("bfloat16", "float16"):
        return Reason(declared, "the checkpoint's own")
    gemma = model.model_type.startswith("gemma")
    return Reason("bfloat16" if gemma else "float16", f"a checkpoint in {declared}")


def settle_quantization(c: Choices) -> None:
    """`quantization` is the argument; `model_quantization` what the model makes of it."""
    if c.speculative_draft_model_quantization is None:
        c.settle("the target's, as asked", speculative_draft_model_quantization=c.quantization)
    if c.speculative_draft_model_quantization == "unquant":
        c.settle("unquant leaves the argument empty", speculative_draft_model_quantization=None)
    asked = c.quantization
    if asked == "unquant":
        c.settle("unquant leaves the argument empty", quantization=None)
    found = model_quantization(c.quantization, c.model, c.release)
    c.settle("the checkpoint's", model_quantization=found)
    _write_back(c, explicitly_unset=asked == "unquant")


def _write_back(c: Choices, explicitly_unset: bool) -> None:
    """Some families make the checkpoint's method the argument, under the name that config.json gives it."""
    architecture, found = c.model.architecture, c.model_quantization
    rule = f"{architecture} makes the checkpoint's the argument"
    if architecture in NEMOTRON and found in MODELOPTS:
        _check_activation(c.model)
        c.settle(rule, quantization="modelopt_fp8" if found == "modelopt" else found)  # of no algorithm
    if c.quantization is not None or explicitly_unset:
        return
    if any(
        architecture in row.architectures
        and c.release.number >= row.since
        and (not row.majors or c.gpu.major in row.majors)
        for row in WRITE_BACKS
    ):
        declared = declared_method(c.model, c.release)
        c.settle(rule, quantization=declared)
        if declared in _READ_ANEW:
            c.settle(f"{rule}, and reads it so", model_quantization=declared)
        if _is_minimax_in_nvfp4(c):
            c.settle(rule, quantization=MINIMAX_NVFP4, model_quantization=MINIMAX_NVFP4)
    elif _is_gemma_in_fp4(c):
        c.settle(rule, quantization=found)


def _is_minimax_in_nvfp4(c: Choices) -> bool:
    served = c.model.architecture in MINIMAX3 and c.release.serves_nvfp4_minimax
    return served and c.quantization == "mxfp8" and packs_nvfp4_beside_mxfp8(c.model)


def _is_gemma_in_fp4(c: Choices) -> bool:
    served = c.model.architecture in GEMMA4 and c.release.number >= GEMMA_WRITES_BACK_SINCE
    unset = c.gpu.major == 10 and c.moe_runner_backend == "auto"
    return bool(served and unset and c.model_quantization == "modelopt_fp4")


def _check_activation(model: Checkpoint) -> None:
    activation = model.get("mlp_hidden_act")
    if activation != "relu2":
        raise ConfigError(
            f"config.json: mlp_hidden_act is {activation!r}: SGLang serves {model.architecture} "
            "quantized by ModelOpt with relu2 only"
        )


def declared_method(model: Checkpoint, release: Release) -> str | None:
    """What config.json itself says, under SGLang's name; ModelOpt's own file is not asked."""
    section = _of_config(model, release)
    return None if section is None else _method(section, "") or None


def model_quantization(
    asked: str | None, model: Checkpoint, release: Release, draft: bool = False
) -> str | None:
    """A draft takes its checkpoint's own where the two do not go together."""
    wanted = asked.lower() if asked is not None else None
    section = _of_config(model, release) or _of_modelopts_file(model, release)
    if section is not None:
        method = _method(section, wanted or "")
        adopted = _adopted(section, method, wanted, release, draft)
        if adopted is not None:
            wanted = method = adopted
        wanted = _agreed(wanted, method, release, draft)
    else:
        _check_unread(wanted, model)
    if wanted is not None and wanted not in _METHODS.difference(release.dropped_methods):
        raise ConfigError(f"quantization {wanted}: SGLang {release.version} has no such method")
    return wanted


def _check_unread(wanted: str | None, model: Checkpoint) -> None:
    for name in model.unread_files:
        if name in OWN_FILES.get(wanted or "", ()):
            raise ConfigError(
                f"--quantization {wanted}: SGLang reads in {name} how this checkpoint is quantized, which is "
                "not read here",
                "tell config.json what it says, as `quantization_config`, with `quant_method`: "
                + {"awq": "awq", "awq_marlin": "awq", "auto-round": "auto-round"}.get(wanted or "", "gptq"),
            )


def _agreed(wanted: str | None, method: str, release: Release, draft: bool) -> str:
    if wanted is None or wanted == method:
        return method
    if (wanted, method) in release.goes_with or _keeps_online(wanted, method, draft):
        return wanted
    if draft:
        return method
    if wanted == "quark_mxfp4":
        return wanted
    raise ConfigError(
        f"--quantization {wanted}: the checkpoint is quantized by {method}, and SGLang refuses another",
        tries=("quantization", {"quantization": method}),
    )


def _keeps_online(wanted: str | None, method: str, draft: bool) -> bool:
    return draft and wanted == "nvfp4_online" and method in ("modelopt_fp4", "modelopt_mixed")


def _of_config(model: Checkpoint, release: Release) -> Mapping[str, Any] | None:
    section = model.mapping("quantization_config") or model.mapping("compression_config")
    if not section:
        return None
    method = section.get("quant_method")
    if method in (None, "modelopt"):
        named = _modelopt_method(section, model, release)
        return {**section, "quant_method": named} if named else section
    return section


def _of_modelopts_file(model: Checkpoint, release: Release) -> Mapping[str, Any] | None:
    section = model.quant_file.get("quantization")
    if not isinstance(section, Mapping):
        return None
    named = _modelopt_method(section, model, release)
    return {**section, "quant_method": named} if named else None


def _method(section: Mapping[str, Any], unset: str) -> str:
    method = section.get("quant_method", unset)
    if not isinstance(method, str):
        raise ConfigError(f"config.json: quantization_config: quant_method is {method!r}: a name is needed")
    return method.lower()


def _modelopt_method(section: Mapping[str, Any], model: Checkpoint, release: Release) -> str | None:
    nested = section.get("quantization")
    algorithm = str((nested if isinstance(nested, Mapping) else section).get("quant_algo") or "").upper()
    if algorithm == "MIXED_PRECISION":
        return "modelopt_mixed" if _is_mixed_fp4(section, model, release) else "w4afp8"
    if "FP4" in algorithm:
        return "modelopt_fp4"
    if release.fp8_algorithms_apart:
        return {"FP8": "modelopt_fp8", "MXFP8": "mxfp8"}.get(algorithm)
    return "modelopt_fp8" if "FP8" in algorithm else None


def _is_mixed_fp4(section: Mapping[str, Any], model: Checkpoint, release: Release) -> bool:
    if not release.mixed_by_layers:
        return model.model_type == "nemotron_h" or model.architecture.startswith("NemotronH")
    layers = section.get("quantized_layers")
    kinds = layers.values() if isinstance(layers, Mapping) else ()
    return any(
        isinstance(one, Mapping) and str(one.get("quant_algo", "")).upper() in _FP4_LAYERS for one in kinds
    )


def _adopted(
    section: Mapping[str, Any], method: str, wanted: str | None, release: Release, draft: bool
) -> str | None:
    """The first method that takes this checkpoint for its own, whatever was asked."""
    if wanted == "quark_mxfp4" or _keeps_online(wanted, method, draft):
        return None
    if method in MODELOPTS[1:] and not (release.fp8_algorithms_apart and wanted in _REQUANTIZES):
        return method
    if method == "awq" and wanted in (None, "marlin", "awq_marlin") and _is_marlin_awq(section):
        return "awq_marlin"
    if method == "gptq" and wanted in (None, "marlin", "gptq_marlin") and _is_marlin_gptq(section):
        return "gptq_marlin"
    if wanted == "moe_wna16" and method in ("awq", "gptq"):
        return wanted
    return wanted if wanted == "humming" and method != "mxfp4" else None


def _is_marlin_awq(section: Mapping[str, Any]) -> bool:
    groups = section.get("group_size", section.get("q_group_size"))
    return section.get("bits") == 4 and groups in _MARLIN_GROUPS and section.get("zero_point") is True


def _is_marlin_gptq(section: Mapping[str, Any]) -> bool:
    fits = section.get("bits") in (4, 8) and section.get("sym") is True and "desc_act" in section
    return fits and section.get("group_size") in _MARLIN_GROUPS and not section.get("is_marlin_format")
