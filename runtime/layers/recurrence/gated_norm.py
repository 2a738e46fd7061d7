"""The norm between a recurrence and its output projection, with the gate that opens it."""

from __future__ import annotations

import torch
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.layers.recurrence import ops


class GatedNorm(nn.Module):
    """`group` values are normed by their own mean square; `rows` are of a vector that is split. The gate
    opens by its silu, or by its sigmoid alone (`plain_gate`). A checkpoint's weights may be told less one
    (`centred`), and of what is answered without its `scale`."""

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
        plain_gate: bool = False,
        rows: slice | None = None,
        scale: float = 1.0,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.group, self.eps, self.gate_first = name, group, eps, gate_first
        self.plain_gate, self.scale, self.centred = plain_gate, scale, centred
        self.index = () if rows is None else (rows,)
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return ops.gated_norm(x, gate, self.weight, self.group, self.eps, self.gate_first, self.plain_gate)

    def pieces(self) -> list[Piece]:
        view = self._scaled if self.centred or self.scale != 1 else None
        return [Piece(self.weight, (Source(f"{self.name}.weight", self.index, view),))]

    def _scaled(self, told: torch.Tensor) -> torch.Tensor:
        return self.scale * (told + 1 if self.centred else told)
