"""What becomes of a residual from layer to layer. Data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.bounds import check_model


@dataclass(frozen=True, slots=True)
class SnapshotsConfig:
    """Before every so many layers the residual is kept, and begins anew: what a part of a layer reads is a
    mean of all that are kept and of the last one, weighted by a softmax of how each scores."""

    every: int

    def before(self, layer: int) -> int:
        """How many layers in front of this one have kept theirs."""
        return -(-layer // self.every)


@dataclass(frozen=True, slots=True)
class PredictionsConfig:
    """So many streams: a layer predicts each of all of them, computes the `active` one, and corrects each by
    how far off that was. Beside its attention rows take a detour through `rank` values."""

    count: int
    active: int
    rank: int
    scales: bool  # the active one, by numbers of the layer's own, before its inputs are added to the others

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class EntryConfig:
    """The first layer adds to the rows that it is given, and norms both of its answers. Those behind it add
    to what their first norm makes of the rows, and norm attention's answer alone. How much an answer counts,
    of the `first` layer and of the `others`: attention's, and that of what follows it."""

    first: tuple[float, float]
    others: tuple[float, float]

    def of(self, layer: int) -> tuple[float, float]:
        return self.others if layer else self.first
