"""A norm whose rows open a narrow gate for themselves."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.server.norm_gates import NormGates

_SPELLINGS = ("gate_{}_projection", "gate_{}_lowrank")  # a checkpoint's, and SGLang's own


class GatedRowNorm(nn.Module):
    """A checkpoint tells the weights less one. What is added, and what is rounded where, is as SGLang has it:
    so much memory it takes."""

    def __init__(
        self, name: str, size: int, eps: float, gates: NormGates, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.name, self.eps, self.counts, self.scale = name, eps, gates.weight, 1.0

        def made(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)

        self.weight, self.up, self.down = made(size), made(gates.rank, size), made(size, gates.rank)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.float()
        rows = rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + self.eps)
        rows = (rows * (1 + self.weight.float())).to(x.dtype)
        gate = F.silu(F.linear(rows, self.up).float()).to(x.dtype)
        gate = F.linear(gate, self.down)
        gate = torch.sigmoid(gate.float()).to(x.dtype)
        rows = rows * self.counts * gate
        return rows if self.scale == 1 else (rows.float() * self.scale).to(x.dtype)

    def in_place(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self(x))

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """residual += x, beside both; its norm."""
        total = x + residual
        normed = self(total)
        residual.copy_(total)
        return normed

    def scale_by(self, scale: float) -> None:
        """What the gate let through."""
        self.scale *= scale

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self.weight, (Source(f"{self.name}.weight"),))
        for one, matrix in (("up", self.up), ("down", self.down)):
            names = (f"{self.name}.{spelling.format(one)}.weight" for spelling in _SPELLINGS)
            yield Piece(matrix, tuple(Source(name) for name in names))
