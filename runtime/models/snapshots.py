"""Residuals that are kept at the ends of blocks of layers, and what parts of a layer read of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from runtime.layers import snapshot_ops
from runtime.layers.loading import Piece, Source
from runtime.models.build import Build


@dataclass(slots=True, eq=False)
class Snapshots:
    """Of one forward: `count` of its rows [T, N, H] are kept."""

    rows: torch.Tensor
    count: int = 0

    @classmethod
    def opened(cls, hidden: torch.Tensor, room: int, given: torch.Tensor | None = None) -> Snapshots:
        """`given`: what the stages before this one have kept."""
        made = cls(hidden.new_empty(hidden.shape[0], room, hidden.shape[1]))
        if given is not None:
            made.count = given.shape[1]
            made.rows[:, : made.count].copy_(given)
        return made

    def keep(self, residual: torch.Tensor) -> None:
        self.rows[:, self.count].copy_(residual)
        self.count += 1


class Mixture(nn.Module):
    """What is read of all that are kept, and of the residual."""

    scored: torch.Tensor
    scored_short: torch.Tensor

    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        self.name, self.eps = name, build.model.rms_eps
        hidden = build.model.hidden_size
        self.norm = build.norm(f"{name}_norm", hidden)
        weight = torch.empty(1, hidden, dtype=build.dtype, device=build.device)
        self.weight = nn.Parameter(weight, requires_grad=False)

    def finalize(self) -> None:
        """A server has the product of both vectors twice, for either of its kernels."""
        product = self.norm.weight.float() * self.weight[0].float()
        self.register_buffer("scored", product)
        self.register_buffer("scored_short", product.to(torch.bfloat16))

    def forward(self, residual: torch.Tensor, kept: Snapshots) -> torch.Tensor:
        if not kept.count:
            return residual
        return snapshot_ops.mixed(kept.rows, residual, kept.count, self.scored, self.eps)

    def pieces(self) -> Iterator[Piece]:
        yield from self.norm.pieces()
        yield Piece(self.weight, (Source(f"{self.name}_proj.weight"),))
