"""The MLP of a dense layer or of shared experts, gated or not, split over the TP group.

An activation is one kernel on a server, so it is one op here, which allocates only its result.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.linear import Linear
from runtime.simulate.kernel import kernel


class MLP(nn.Module):
    """An MLP. Its output is a partial sum over the ranks that share it. All gates are opened by silu: other
    functions have the same sizes."""

    def __init__(self, up: Linear, down: Linear, is_gated: bool) -> None:
        super().__init__()
        self.up, self.down = up, down
        self.activate = silu_and_mul if is_gated else squared_relu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activate(self.up(x)))


def _half(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@kernel(lambda x: x.new_empty(x.shape))
def squared_relu(x: torch.Tensor) -> torch.Tensor:
    return F.relu(x).square_()


@kernel(_half)
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) * up [T, I] for rows [T, 2 I] with gates before ups."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)
