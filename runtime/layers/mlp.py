"""The MLP of a dense layer (or of the shared experts), gated or not, split over the TP group."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.linear import Linear
from runtime.layers.loading import Piece, Source
from runtime.layers.opaque import opaque_op

_GELU_SCALE, _QUICK = math.sqrt(2 / math.pi), 1.702
_GATES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class GatedMLP(nn.Module):
    """Its result is a partial sum over the ranks that it is split over."""

    def __init__(
        self,
        gate_up: Linear,
        down: Linear,
        activation: str = "silu",
        cap: float | None = None,
        caps_before: bool = False,
    ) -> None:
        super().__init__()
        self.gate_up, self.down, self.cap = gate_up, down, cap
        self.activate, self.capped = _GATED[activation], capped_before if caps_before else capped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.gate_up(x)
        return self.down(self.activate(both) if self.cap is None else self.capped(both, self.cap))

    def pieces(self) -> Iterator[Piece]:
        yield from self.gate_up.pieces()
        yield from self.down.pieces()


class TwinMLP(nn.Module):
    """The same of two matrices, and in steps."""

    def __init__(self, gate: Linear, up: Linear, down: Linear, activation: str = "silu") -> None:
        super().__init__()
        self.gate, self.up, self.down = gate, up, down
        self.open = _GATES[activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate(x), self.up(x)
        return self.down(self.open(gate) * up)

    def pieces(self) -> Iterator[Piece]:
        for part in (self.gate, self.up, self.down):
            yield from part.pieces()


class ScaledMLP(GatedMLP):
    """Its gates count so much before they open, and its answer so much."""

    def __init__(self, gate_up: Linear, down: Linear, activation: str, scales: tuple[float, float]) -> None:
        super().__init__(gate_up, down, activation)
        self.gates, self.answer = scales

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.gate_up(x)
        both[:, : both.shape[1] // 2].mul_(self.gates)
        return self.down(self.activate(both)) * self.answer


class ClampedMLP(GatedMLP):
    """(up + 1) * gate * sigmoid(alpha * gate), both clamped to a limit."""

    def __init__(self, gate_up: Linear, down: Linear, swiglu: tuple[float, float]) -> None:
        super().__init__(gate_up, down)
        self.alpha, self.limit = swiglu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(clamped_swiglu(self.gate_up(x), self.alpha, self.limit))


class QuickGeluMLP(GatedMLP):
    """The same without a limit, of Phi 3 small: in steps, which torch compiles in SGLang."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(gate * torch.sigmoid(_QUICK * gate) * (up + 1))


class SituMLP(GatedMLP):
    """A tanh of gates, as high as the first number, opened by a sigmoid of them, times ups; of the other
    number, where it is not 0, ups are a tanh of themselves, too."""

    def __init__(self, gate_up: Linear, down: Linear, heights: tuple[float, float]) -> None:
        super().__init__(gate_up, down)
        self.heights = heights

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(situ(self.gate_up(x), *self.heights))


class SquaredMLP(GatedMLP):
    """The same without a gate: the square of what is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(squared_relu(self.gate_up(x)))


class GeluMLP(GatedMLP):
    """... its gelu, by tanh."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.gate_up(x), approximate="tanh"))


class WholeGeluMLP(GatedMLP):
    """... as it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.gate_up(x)))


class ReluMLP(GatedMLP):
    """... what is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.relu(self.gate_up(x)))


class SteppedGeluMLP(GatedMLP):
    """... the same in steps, as SGLang has gelu_new."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(_gelu_new(self.gate_up(x)))


def _gelu_new(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(_GELU_SCALE * (x + 0.044715 * torch.pow(x, 3.0))))


class XieluMLP(GatedMLP):
    """... a parabola of what is positive, and of the rest an exponential, by numbers of the layer's own.

    In steps, as SGLang without the package xielu."""

    beta: torch.Tensor
    eps: torch.Tensor

    def __init__(self, name: str, up: Linear, down: Linear, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(up, down)
        self.name = f"{name}.act_fn"
        self.alpha_p, self.alpha_n = (
            nn.Parameter(torch.empty(1, dtype=dtype, device=device), requires_grad=False) for _ in range(2)
        )
        self.register_buffer("beta", torch.tensor(0.5, dtype=dtype, device=device))
        self.register_buffer("eps", torch.tensor(-1e-6, dtype=dtype, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self._activated(self.gate_up(x)))

    def _activated(self, x: torch.Tensor) -> torch.Tensor:
        rises = F.softplus(self.alpha_p)
        falls = self.beta + F.softplus(self.alpha_n)
        return torch.where(
            x > 0,
            rises * x * x + self.beta * x,
            (torch.expm1(torch.min(x, self.eps)) - x) * falls + self.beta * x,
        )

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        for own in ("alpha_p", "alpha_n", "beta", "eps"):
            yield Piece(getattr(self, own), (Source(f"{self.name}.{own}"),))


@opaque_op("sgl_tune::squared_relu", mutates_args=())
def squared_relu(x: torch.Tensor) -> torch.Tensor:
    if x.is_cuda:
        from runtime.layers import kernels

        return kernels.squared_relu(x)
    return F.relu(x).square()


@squared_relu.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)


@opaque_op("sgl_tune::silu_and_mul", mutates_args=())
def silu_and_mul(x: torch.Tensor) -> torch.Tensor:
    """[T, 2 I], gates before ups -> silu(gate) * up [T, I]."""
    if x.is_cuda:
        from runtime.layers import kernels

        return kernels.silu_and_mul(x)
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate) * up


@silu_and_mul.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


def capped(x: torch.Tensor, cap: float) -> torch.Tensor:
    """[T, 2 I], gates before ups -> silu(gate) * up [T, I], each capped; as SGLang, in steps."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate).clamp(max=cap) * up.clamp(-cap, cap)


@opaque_op("sgl_tune::capped_before", mutates_args=())
def capped_before(x: torch.Tensor, cap: float) -> torch.Tensor:
    """[T, 2 I], gates before ups -> silu(gate) * up [T, I], of which gate and up are capped."""
    gate, up = x.chunk(2, dim=-1)
    return F.silu(gate.clamp(max=cap)) * up.clamp(-cap, cap)


@capped_before.register_fake
def _(x: torch.Tensor, cap: float) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@opaque_op("sgl_tune::clamped_swiglu", mutates_args=())
def clamped_swiglu(x: torch.Tensor, alpha: float, limit: float) -> torch.Tensor:
    """[T, 2 I], gates before ups -> [T, I]."""
    gate, up = x.chunk(2, dim=-1)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(alpha * gate)


@clamped_swiglu.register_fake
def _(x: torch.Tensor, alpha: float, limit: float) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@opaque_op("sgl_tune::situ", mutates_args=())
def situ(x: torch.Tensor, height: float, ups: float) -> torch.Tensor:
    """[T, 2 I], gates before ups -> height * tanh(gate / height) * sigmoid(gate) * up [T, I], in fp32."""
    if x.is_cuda:
        from runtime.layers import kernels

        return kernels.situ(x, height, ups)
    gate, up = x.float().chunk(2, dim=-1)
    if ups:
        up = ups * torch.tanh(up / ups)
    return (height * torch.tanh(gate / height) * torch.sigmoid(gate) * up).to(x.dtype)


@situ.register_fake
def _(x: torch.Tensor, height: float, ups: float) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@opaque_op("sgl_tune::gelu_and_mul", mutates_args=())
def gelu_and_mul(x: torch.Tensor, by_erf: bool = False) -> torch.Tensor:
    """[T, 2 I], gates before ups -> gelu(gate) * up [T, I], by tanh or as it is."""
    if x.is_cuda:
        from runtime.layers import kernels

        return kernels.gelu_and_mul(x, by_erf)
    gate, up = x.chunk(2, dim=-1)
    return F.gelu(gate, approximate="none" if by_erf else "tanh") * up


@gelu_and_mul.register_fake
def _(x: torch.Tensor, by_erf: bool = False) -> torch.Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


_GATED: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": silu_and_mul,
    "gelu": partial(gelu_and_mul, by_erf=True),
    "gelu_tanh": gelu_and_mul,
}
