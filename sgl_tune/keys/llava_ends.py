"""Where a start of LLaVA's own checkpoints ends: srt/models/llava.py, llavavid.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def ends_of_llava(deployment: Deployment) -> Iterator[str]:
    """Its forward asks each request of a prefill for images, and a capture by torch.compile has no requests;
    others capture the layers alone."""
    encoder, server = deployment.model.encoder, deployment.server
    if encoder is None or not encoder.reads_another:
        return
    if server.compiles_prefills and server.prefill_graphs:
        yield (
            "LLaVA's class ends where prefills are captured by torch.compile: "
            "--cuda-graph-backend-prefill breakable, or none are captured"
        )
