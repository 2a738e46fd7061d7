"""Queries of all heads, made of one narrow row that every rank has: srt/models/step3_vl.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.linear import Part
from runtime.layers.loading import Piece
from runtime.models.build import Build


class SharedQuery(nn.Module):
    """`rows` are those of this rank's heads."""

    def __init__(self, build: Build, name: str, rank: int, rows: slice) -> None:
        super().__init__()
        self.norm = build.norm(f"{name}.inter_norm", rank)
        ranks = build.comm.size("attn_tp")
        self.up = build.linear([Part(f"{name}.wq", rows)], slice(0, rank), rows_over=ranks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(self.norm(x.contiguous()))

    def pieces(self) -> Iterator[Piece]:
        yield from (*self.norm.pieces(), *self.up.pieces())
