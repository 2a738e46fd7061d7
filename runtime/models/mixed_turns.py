"""What turns queries and keys of all layers, where each KV head mixes cosines and sines by weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece, Source, length
from runtime.layers.mixed_rope import mixed_table, turned
from runtime.server.layer_config import RopeConfig


class MixedTurns(nn.Module):
    """Its table is made twice, as in SGLang: with the first layer, and of the weights at the first forward,
    beside the one that is there."""

    table: torch.Tensor

    def __init__(self, rope: RopeConfig, heads: slice, device: torch.device) -> None:
        super().__init__()
        assert rope.mixed is not None
        self.rope, self.heads, self.is_of_weights = rope, heads, False
        shape = (length(heads), rope.mixed, rope.mixed)
        self.cos_coef, self.sin_coef = (
            nn.Parameter(torch.empty(shape, dtype=torch.float32, device=device), requires_grad=False)
            for _ in range(2)
        )
        self.register_buffer("table", self._made())

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_of_weights:
            self.table, self.is_of_weights = self._made(), True
        return turned(q, k, self.table, positions)

    def _made(self) -> torch.Tensor:
        return mixed_table(self.rope, self.cos_coef, self.sin_coef)

    def pieces(self) -> Iterator[Piece]:
        for name, tensor in (("cos_coef", self.cos_coef), ("sin_coef", self.sin_coef)):
            yield Piece(tensor, (Source(f"model.rotary_emb.{name}", (self.heads,)),))
