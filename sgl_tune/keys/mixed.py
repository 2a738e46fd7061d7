"""Checkpoints of several kinds of weights: SGLang runs each matrix as a checkpoint all of whose are alike.

srt/layers/quantization/modelopt_quant.py, ModelOptMixedPrecisionConfig; and lists of what stays plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from runtime.server.declared import MIXED
from runtime.server.errors import ConfigError
from runtime.server.formats.assigned import UNQUANTIZED, Quantized
from runtime.server.formats.kinds import Kind, method_of
from runtime.server.linears import Wanted, each_listed, experts_listed
from runtime.server.recurrent import AddedConvolutionsConfig

if TYPE_CHECKING:
    from runtime.server.config import ModelConfig
    from sgl_tune.deployment.deployment import Deployment

# Methods whose dense matrices may be of another kind, or of none that is tuned.
_BY_KIND = (MIXED, "modelopt_fp4")


def of_each_kind(deployment: Deployment) -> Iterator[Deployment]:
    """One for each way that its experts are stored, as if all were."""
    model = deployment.shape.model
    if model is None or model.checkpoint_quantization is None or model.quantized == UNQUANTIZED:
        yield deployment
        return
    kinds = () if _is_one_layer_more(deployment) else _of_experts(model)
    if deployment.quantization == MIXED:
        yield from (_as_all(deployment, model, kind, method_of(kind)) for kind in kinds or (None,))
    else:
        has_plain = _has_plain_call(model, kinds)
        yield from () if has_plain and len(kinds) == 1 else (deployment,)
        yield from (_as_all(deployment, model, None, None),) if has_plain else ()


def _has_plain_call(model: ModelConfig, kinds: tuple[Kind | None, ...]) -> bool:
    """But where the class runs such experts by kernels of its own: srt/models/inkling.py."""
    return None in kinds and not isinstance(model.recurrent, AddedConvolutionsConfig)


def wanted_for(deployment: Deployment, method: str) -> Wanted | None:
    """Which dense matrices its GEMMs multiply by; None: by all that are quantized."""
    model = deployment.shape.model
    if deployment.quantization not in _BY_KIND or model is None or model.quantized == UNQUANTIZED:
        return None
    if deployment.quantization == MIXED and _is_one_layer_more(deployment):
        return lambda _: False
    return lambda kind: kind is not None and kind.has_inputs and method_of(kind) == method


def _is_one_layer_more(deployment: Deployment) -> bool:
    """Of the target's own file, whose lists have other names: a mixed one that names drafts is not served."""
    return deployment.server.is_draft and deployment.inputs.draft_checkpoint is None


def has_dense(deployment: Deployment, method: str) -> bool:
    """Whether a checkpoint of several kinds has some that are run by this method."""
    wanted, model = wanted_for(deployment, method), deployment.shape.model
    if wanted is None or model is None:
        return False
    told = model.quantized
    if not any(map(wanted, (told.linear, *told.of_names, *told.of_expressions))):
        return False
    try:
        return any(wanted(told.of_linear(parts)) for _, _, parts in each_listed(model))
    except ConfigError:  # at which its server ends
        return False


def shares_in_fp4_alone(model: ModelConfig) -> bool:
    """Whether no shared expert is in another kind."""
    beside = (parts for size, _, parts in each_listed(model) if size.place == "beside experts")
    kinds = {model.quantized.of_linear(parts) for parts in beside} - {None}
    return all(method_of(kind) == "modelopt_fp4" for kind in kinds)


def _of_experts(model: ModelConfig) -> tuple[Kind | None, ...]:
    try:
        return tuple(dict.fromkeys(model.quantized.of_experts(name) for name in experts_listed(model)))
    except ConfigError:
        return ()


def _as_all(deployment: Deployment, model: ModelConfig, kind: Kind | None, method: str | None) -> Deployment:
    server = replace(deployment.server, model_quantization=method)
    alike = replace(
        model,
        quantized=Quantized(experts=kind),
        checkpoint_quantization=method,
        quantization_block=kind.block if kind is not None and method == "fp8" else None,
    )
    return replace(deployment, server=server, shape=replace(deployment.shape, model=alike))
