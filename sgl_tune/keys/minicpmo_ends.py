"""Where SGLang's class of MiniCPM-o ends as it reads files: srt/models/minicpmo.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment


def ends_of_minicpmo(deployment: Deployment) -> Iterator[str]:
    """Of 4.5, a Qwen3 of no biases, it finds no place for what norms queries and keys."""
    checkpoint = checkpoint_of(deployment)
    if checkpoint.architecture != "MiniCPMO" or deployment.server.asked.load_format == "dummy":
        return
    if str(checkpoint.hf.get("version")) == "4.5":
        yield "MiniCPM-o 4.5 is a Qwen3, and SGLang's class has a Qwen2 for it: it ends as it reads its files"
