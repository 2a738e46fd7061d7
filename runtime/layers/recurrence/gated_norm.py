"""The norm between a recurrence and its output projection, with the gate that opens it."""

from __future__ import annotations

import torch
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.layers.recurrence.base import gated_norm


class GatedNorm(nn.Module):
    """`group` values are normed by their own mean square; `rows` are of a vector that is split. The gate
    opens by its silu, before the norm or after."""

    def __init__(
        self,
        name: str,
        size: int,
        group: int,
        eps: float,
        dtype: torch.dtype,
        device: torch.device,
        *,
        gate_first: bool,
        rows: slice | None = None,
    ) -> None:
        super().__init__()
        self.name, self.group, self.eps, self.gate_first = name, group, eps, gate_first
        self.index = () if rows is None else (rows,)
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return gated_norm(x, gate, self.weight, self.group, self.eps, self.gate_first)

    def pieces(self) -> list[Piece]:
        return [Piece(self.weight, (Source(f"{self.name}.weight", self.index),))]
