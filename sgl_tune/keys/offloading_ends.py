"""Where SGLang ends at layers that are to leave the GPU in groups: OffloaderV2 of srt/utils/offloader.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.offloading import takes_layers
from runtime.server.parallel import stage_layers

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_AMONG_RANKS = ("sharded_gpu", "shm_cpu")


def ends_of_offloading(deployment: Deployment) -> Iterator[str]:
    """Its class says which parts of a layer may leave, and DeepSeek's alone does: srt/models."""
    server = deployment.server
    asked, told = server.asked, server.asked.others
    size, mode = told.get("offload_group_size", -1), told.get("offload_mode", "cpu")
    if size <= 0 or asked.cpu_offload_gb > 0 or server.is_draft:
        return
    if mode in _AMONG_RANKS and deployment.parallel.tp > 1:
        yield f"--offload-mode {mode} goes with --tp-size 1 alone"
    takes = takes_layers(deployment.model)
    if takes is None:
        return
    kind, chosen = deployment.model.model_type, told.get("offload_num_in_group", 1)
    layers, layout = deployment.model.num_layers, deployment.parallel
    longest = max(len(stage_layers(layers, layout, stage)) for stage in range(layout.pp))
    some = any(at % size >= size - chosen for at in range(longest))
    if takes and some:
        yield f"--offload-group-size: {kind}'s class does not say what of its layers may leave the GPU"
    elif told.get("offload_prefetch_step", 1) > 0:
        yield f"--offload-group-size: no layer of {kind} leaves the GPU, and SGLang asks for the first one"
