"""A matrix whose rows attention's ranks share out, each of which then has what all of them made."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.linear import Part
from runtime.layers.loading import Piece, shard
from runtime.models.build import Build


class Gathered(nn.Module):
    def __init__(self, build: Build, name: str, rows: int, columns: int) -> None:
        super().__init__()
        self.comm, self.ranks = build.comm, build.comm.size("attn_tp")
        own = shard(rows, self.ranks, build.comm.rank("attn_tp"), f"the rows of {name}")
        self.own = build.linear([Part(name, own)], slice(0, columns), rows_over=self.ranks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        part = self.own(x)
        if self.ranks == 1:
            return part
        parts = part.new_empty(self.ranks * part.shape[0], part.shape[1])
        self.comm.all_gather_into(parts, part, "attn_tp")
        return parts.view(self.ranks, *part.shape).movedim(0, 1).flatten(1)

    def pieces(self) -> Iterator[Piece]:
        return self.own.pieces()
