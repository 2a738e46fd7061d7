"""Attention and a recurrence of the same rows, whose answers are added."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.loading import Piece
from runtime.models.gqa import GroupedQueryAttention
from runtime.models.mamba2 import Mamba2Mixer
from runtime.server.layer_config import Multipliers


class ParallelMixers(nn.Module):
    """Its result is a partial sum over the attention-TP group, as theirs are."""

    def __init__(
        self, attention: GroupedQueryAttention, recurrence: Mamba2Mixer, multipliers: Multipliers
    ) -> None:
        super().__init__()
        self.attention, self.recurrence = attention, recurrence
        self.multipliers = multipliers

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        (given, answer), beside = self.multipliers.attention, self.multipliers.recurrence
        attended = self.attention(x * given, batch, pool, table) * answer
        return attended + self.recurrence(x * beside[0], batch, pool, table) * beside[1]

    def pieces(self) -> Iterator[Piece]:
        yield from self.attention.pieces()
        yield from self.recurrence.pieces()
