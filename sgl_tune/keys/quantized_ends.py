"""Where the class of one family ends at quantized weights that others load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.recurrent import Mamba2Config

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_GRANITES_EXPERTS = (("fp8", "row"), ("fp8", "block"))


def ends_of_quantized(deployment: Deployment) -> Iterator[str]:
    if deployment.quantization is not None:
        yield from _dropped(deployment)
        yield from _mixers(deployment)
        yield from _granite_hybrid(deployment)


def _dropped(deployment: Deployment) -> Iterator[str]:
    """Read anew by the argument that some families write back: srt/configs/model_config.py."""
    method = deployment.quantization
    if method in deployment.server.release.dropped_methods:
        yield (
            f"SGLang reads config.json once more as --quantization {method}, of which it has no method: "
            f"--quantization {method}_marlin"
        )


def _mixers(deployment: Deployment) -> Iterator[str]:
    """srt/layers/attention/mamba/mamba.py: whatever of it a list keeps plain."""
    recurrent, ranks = deployment.model.recurrent, deployment.parallel.attn_tp
    if deployment.model.model_type == "falcon_h1":
        return  # whose mixers are plain
    if isinstance(recurrent, Mamba2Config) and recurrent.num_groups % ranks:
        yield f"{ranks} ranks cannot share quantized matrices of {recurrent.num_groups} groups of Mamba's"


def _granite_hybrid(deployment: Deployment) -> Iterator[str]:
    """load_weights of srt/models/granitemoehybrid.py: what it asks a method for, and how it knows experts."""
    model, method = deployment.model, deployment.quantization
    if model.model_type != "granitemoehybrid":
        return
    if method != "compressed-tensors":
        yield f"SGLang's class of Granite 4 loads weights in compressed-tensors, and these are in {method}"
    elif "moe" in model.layer_kinds:
        blocks = (model.block_name(layer) for layer in range(model.num_layers))
        kinds = {model.quantized.of_experts(model.experts_name(block)) for block in blocks}
        unread = next((one for one in kinds if one and (one.name, one.per) not in _GRANITES_EXPERTS), None)
        if unread is not None:
            yield f"SGLang's class of Granite 4 knows no tensors of experts in {unread.name} a {unread.per}"
