"""Matrices of a checkpoint that a server does not make one: each multiplies by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from runtime.layers.linear import Linear
from runtime.layers.loading import Piece


class SideBySide(nn.Module):
    """Their answers stand beside each other, as that of one would."""

    def __init__(self, linears: Iterable[Linear]) -> None:
        super().__init__()
        self.linears = nn.ModuleList(linears)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([one(x) for one in self.linears], dim=-1)

    def pieces(self) -> Iterator[Piece]:
        for one in self.linears:
            assert isinstance(one, Linear)
            yield from one.pieces()
