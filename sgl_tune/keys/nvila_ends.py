"""Where SGLang's classes of NVILA end as they read files: srt/models/nvila.py and nvila_lite.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sgl_tune.keys.expert_calls import checkpoint_of

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_CLASSES = ("NVILAForConditionalGeneration", "NVILALiteForConditionalGeneration")
_KNOWS_NAMES = (0, 5, 15)


def ends_of_nvila(deployment: Deployment) -> Iterator[str]:
    """transformers' tower has no vision_model inside, and files name one."""
    server = deployment.server
    reads = server.asked.load_format != "dummy" and server.release.number < _KNOWS_NAMES
    if reads and checkpoint_of(deployment).architecture in _CLASSES:
        yield "SGLang before 0.5.15 finds no weights of NVILA's tower by its files' names: SGLang 0.5.15"
