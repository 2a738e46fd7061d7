"""Layers that are given a share of what an earlier one was given. Data, no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SkipsConfig:
    """Each of several ways `keeps` what a layer was given, and `mixes` the last that it kept, by its `share`,
    into what a later one is given."""

    keeps: tuple[tuple[int, ...], ...]
    mixes: tuple[tuple[int, ...], ...]
    share: float

    def of_layer(self, layer: int) -> tuple[bool, ...]:
        """Whether it is in each of these lists."""
        return tuple(layer in listed for listed in (*self.keeps, *self.mixes))
