"""The MLP of a dense layer or of shared experts, gated or not, split over the TP group.

An activation is one kernel on a server, so it is one op here, which allocates only its result.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from runtime.layers.linear import Linear
from runtime.simulate.kernel import kernel


class MLP(nn.Module):
    """An MLP. Its output is a partial sum over the ranks that share it.

    `activation` is "silu" or "gelu_tanh" of a gate, or "relu2", the squared relu of a row without gates.
    """

    def __init__(self, up: Linear, down: Linear, activation: str) -> None:
        super().__init__()
        self.up, self.down = up, down
        self.activate = _ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activate(self.up(x)))


def _half(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@kernel(lambda x: x.new_empty(x.shape))
def squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square_()


@kernel(_half)
def silu_and_mul(x: Tensor) -> Tensor:
    """Return silu(gate) * up [T, I] for rows [T, 2 I] with gates before ups."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).mul_(up)


@kernel(_half)
def gelu_and_mul(x: Tensor) -> Tensor:
    """Return gelu(gate) * up [T, I], by tanh, for rows [T, 2 I] with gates before ups."""
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh").mul_(up)


_ACTIVATIONS = {"silu": silu_and_mul, "gelu_tanh": gelu_and_mul, "relu2": squared_relu}
