"""How an answer comes back to several residual streams."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """How much each stream is given of an answer, and of each of the others, unless it stays what it is."""

    post: torch.Tensor  # [T, streams]
    mixed: torch.Tensor | None = None  # [T, streams, streams]: from, to
