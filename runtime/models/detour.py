"""What rows become by a detour through few values, beside attention: srt/models/gemma3n_causal.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.linear import Part
from runtime.layers.loading import Piece, shard
from runtime.models.build import Build


class Detour(nn.Module):
    def __init__(self, build: Build, name: str, rank: int) -> None:
        super().__init__()
        self.comm, ranks = build.comm, build.comm.size("attn_tp")
        own = shard(rank, ranks, build.comm.rank("attn_tp"), "laurel_rank")
        hidden = slice(0, build.model.hidden_size)
        self.down = build.linear([Part(f"{name}.linear_left", own)], hidden, rows_over=ranks)
        self.up = build.linear([Part(f"{name}.linear_right", hidden)], own, columns_over=ranks)
        self.norm = build.norm_of_rows(f"{name}.post_laurel_norm")

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + self.norm(self.comm.all_reduce(self.up(self.down(rows)), "attn_tp"))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.down, self.up, self.norm):
            yield from part.pieces()
