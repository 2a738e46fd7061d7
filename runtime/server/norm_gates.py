"""Norms behind which a gate opens, narrow between: srt/models/gigachat35.py. Data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.bounds import check_model


@dataclass(frozen=True, slots=True)
class NormGates:
    """A sigmoid of what is normed, through so few channels, counts so much in it."""

    rank: int
    weight: float

    def __post_init__(self) -> None:
        check_model(self)
