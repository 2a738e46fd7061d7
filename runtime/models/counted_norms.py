"""Norms of layers whose answers are counted from the embedding on: the n-th counts 1 / sqrt(n), and what it
is added to sqrt(1 - 1 / n)."""

from __future__ import annotations

import torch

from runtime.models.build import Build
from runtime.models.sublayer import SublayerNorms, around_attention, around_mlp


class CountedNorms(SublayerNorms):
    def __init__(self, norms: SublayerNorms, number: int) -> None:
        super().__init__(norms.before, norms.after, number**-0.5)
        self.kept = (1 - 1 / number) ** 0.5

    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        normed, residual = super().enter(hidden, residual)
        return normed, residual.mul_(self.kept)


def counted_attention(build: Build, layer_id: int) -> CountedNorms:
    norms = around_attention(build, build.model.layer_name(layer_id))
    assert isinstance(norms, SublayerNorms)
    return CountedNorms(norms, 2 * layer_id + 2)


def counted_mlp(build: Build, layer_id: int) -> CountedNorms:
    norms = around_mlp(build, build.model.layer_name(layer_id))
    assert norms is not None
    return CountedNorms(norms, 2 * layer_id + 3)
