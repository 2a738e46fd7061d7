"""Where SGLang ends as it reads a quantization_config: from_config of srt/layers/quantization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from runtime.server.declared import MIXED, is_whole
from runtime.server.formats.sections import FP4_SINCE
from runtime.server.modelopt_mxfp8 import ALGORITHM as MXFP8
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

# In so many letters.
_ALGORITHMS = {"FP8": (0, 5, 12), **FP4_SINCE}


def ends_of_section(deployment: Deployment) -> Iterator[str]:
    method = deployment.quantization
    if method == "modelopt_fp4":
        yield from _algorithm(deployment)
    if method == "modelopt_fp8":
        yield from _groups(deployment)
    if method == MIXED:
        yield from _half_told(deployment)
    if method in ("fp8", "mxfp8"):
        yield from _no_scheme(deployment, method)


def _no_scheme(deployment: Deployment, method: str) -> Iterator[str]:
    """In every release."""
    checkpoint = checkpoint_of(deployment)
    section = checkpoint.mapping("quantization_config") or checkpoint.section("quantization_config")
    if section.get("quant_method") == method and "activation_scheme" not in section:
        yield f"quantization_config: activation_scheme is missing, and SGLang's {method} asks for it"


def _algorithm(deployment: Deployment) -> Iterator[str]:
    told, release = _section(deployment).get("quant_algo"), deployment.server.release
    known = [name for name, since in _ALGORITHMS.items() if release.number >= since]
    if told is not None and told not in known:
        yield f"quant_algo is {str(told)[:40]!r}: SGLang {release.version} knows {', '.join(known)}"


def _groups(deployment: Deployment) -> Iterator[str]:
    """Before 0.5.18 of no algorithm of their own: parameter.py of srt/layers has room for one scale."""
    section = _section(deployment)
    if section.get("quant_algo") == MXFP8 and deployment.server.asked.load_format != "dummy":
        version = deployment.server.release.version
        yield f"quant_algo is MXFP8: SGLang {version} takes it for FP8, and ends at scales of 32 weights"


def _half_told(deployment: Deployment) -> Iterator[str]:
    """get_quant_config of srt/model_loader/weight_utils.py looks for another file."""
    checkpoint, release = checkpoint_of(deployment), deployment.server.release
    section = checkpoint.mapping("quantization_config")
    if not section or is_whole(section):
        return
    if release.mixed_by_layers and not checkpoint.quant_file:
        yield (
            f"config.json tells nothing of how ModelOpt's keys are stored, and SGLang {release.version} then "
            "looks for hf_quant_config.json beside it: there is none"
        )
    elif not release.mixed_by_layers and not section.get("quantized_layers"):
        yield "config.json has no quantized_layers, and SGLang before 0.5.15 looks nowhere else"


def _section(deployment: Deployment) -> Mapping[str, Any]:
    checkpoint = checkpoint_of(deployment)
    nested = checkpoint.quant_file.get("quantization")
    return checkpoint.mapping("quantization_config") or (nested if isinstance(nested, Mapping) else {})
