"""Rotary position embedding: one table of cosines and sines per model, applied in place by a fused kernel."""

from __future__ import annotations

import torch
from torch import nn

from runtime.server.layer_config import RopeConfig
from runtime.simulate.kernel import in_place, kernel


class RopeTables(nn.Module):
    """Rotary tables. A table is made with the attention of its first layer, so that the temporaries of a long
    table are freed before most weights are loaded."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self._ropes: list[RopeConfig] = []

    def lay(self, rope: RopeConfig | None) -> str | None:
        """Make the table if it does not exist yet, and return its name."""
        if rope is None:
            return None
        if rope not in self._ropes:
            self.register_buffer(f"table_{len(self._ropes)}", rope_table(rope, self._device))
            self._ropes.append(rope)
        return f"table_{self._ropes.index(rope)}"

    def table(self, name: str | None) -> torch.Tensor | None:
        return None if name is None else self.get_buffer(name)


def rope_table(rope: RopeConfig, device: torch.device) -> torch.Tensor:
    """Return [max_position, rotary_dim] fp32: cosines, then sines. Stretched ropes have the same sizes."""
    exponents = torch.arange(0, rope.dim, 2, dtype=torch.float32, device=device) / rope.dim
    positions = torch.arange(rope.max_position, dtype=torch.float32, device=device)
    angles = positions[:, None] * (1.0 / 10000.0**exponents)
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


@kernel(in_place)
def rope_(
    q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool
) -> None:
    """Rotate the first `rotary_dim` values of each head of q [T, heads, D], k [T, kv heads, D], in place."""
    for x in (q, k):
        if x.is_cuda:
            from runtime.layers import kernels

            kernels.rope(x, table, positions, interleaved)
        else:
            _rotate(x, table, positions, interleaved)


def _rotate(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool) -> None:
    dim = table.shape[1]
    cos, sin = table[positions].to(x.dtype).unsqueeze(1).chunk(2, dim=-1)
    rotary = x[..., :dim]
    first, second = (rotary[..., 0::2], rotary[..., 1::2]) if interleaved else rotary.chunk(2, dim=-1)
    turned = first * cos - second * sin
    second.copy_(second * cos + first * sin)
    first.copy_(turned)
