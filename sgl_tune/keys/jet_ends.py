"""Where SGLang's class of Jet-Nemotron ends at its first forward: srt/models/jet_nemotron.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from runtime.server.recurrent import DynamicDeltaConfig

if TYPE_CHECKING:
    from sgl_tune.deployment.deployment import Deployment

_READS_STATES = (0, 5, 22)


def ends_of_jet(deployment: Deployment) -> Iterator[str]:
    if not isinstance(deployment.model.recurrent, DynamicDeltaConfig):
        return
    if deployment.server.release.number < _READS_STATES:
        yield "SGLang before 0.5.22 takes the list of Jet-Nemotron's kept inputs for a tensor: SGLang 0.5.22"
    ranks = deployment.parallel.tp
    if ranks > 1:
        yield f"Jet-Nemotron's layers look for the heads of all {ranks} ranks on each: --tp-size 1"
