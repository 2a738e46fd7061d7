"""Where a target's graphs find tokens and leave logits: SGLang's graphs of a draft use the same places."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.server.releases import Release


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """None where a draft's graphs have their own."""

    embedded: torch.Tensor | None = None
    logits: torch.Tensor | None = None


NO_PLACES = Places()


def rows_apart(release: Release, target: tuple[int, ...], draft: tuple[int, int]) -> int:
    """Of logits, how many rows a draft's graphs have beside their target's: both are of so many rows and
    words."""
    rows, words = draft
    if release.shares_logits == "by words":
        return 0 if words == target[1] else target[0]
    own, there = rows * words, target[0] * target[1]
    shared = own < there if release.shares_logits == "of more" else own == there
    return 0 if shared else rows


def logits_of_draft(
    places: Places, release: Release, rows: int, words: int, device: torch.device
) -> torch.Tensor:
    """Where there are none of a target's, all its own."""
    there = places.logits
    apart = rows if there is None else rows_apart(release, there.shape, (rows, words))
    if apart or there is None:
        return torch.zeros(apart, words, dtype=torch.float32, device=device)
    return there.flatten()[: rows * words].view(rows, words)
