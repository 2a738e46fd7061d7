"""Where SGLang ends at copies of experts, or at how it is asked to record them: srt/eplb."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.expert_places import records
from runtime.server.placement import follows_placement
from runtime.server.told_experts import tells_experts
from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def ends_of_placement(deployment: Deployment) -> Iterator[str]:
    server, model = deployment.server, deployment.model
    architecture = checkpoint_of(deployment).architecture
    is_asked = records(server.asked) and not server.is_draft and not model.by_transformers
    if is_asked and not tells_experts(architecture, server.release.number):
        yield f"EPLB and recorders ask a class for its experts, and {architecture} tells nobody"
    if model.moe is None or server.is_draft or not follows_placement(model, server):
        return
    ranks = deployment.parallel.moe_ep
    if server.runtime.placement is not None and model.moe.places % ranks:
        copies = f" and {model.moe.redundant} copies" if model.moe.redundant else ""
        yield f"{model.moe.num_experts} experts{copies} cannot be divided among {ranks} ranks"
    asks = server.moe_a2a_backend == "deepep" or server.release.records_by_any_a2a
    if records(server.asked) and asks and server.moe_a2a_backend != "none" and _mode(deployment) == "auto":
        yield (
            "EPLB and --expert-distribution-recorder-mode go with one way of DeepEP's alone: "
            "--deepep-mode normal or low_latency"
        )


def _mode(deployment: Deployment) -> str:
    """As settled."""
    server = deployment.server
    return server.asked.deepep_mode if server.deepep is None else server.deepep.mode
