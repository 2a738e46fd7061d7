"""RMS norm as fused kernels: nothing but the result is allocated, and the residual form allocates nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.layers.opaque import opaque_op


class RMSNorm(nn.Module):
    """`rows` of a checkpoint's vector where it is split; `centred` where it is told less one."""

    def __init__(
        self,
        name: str,
        size: int,
        eps: float,
        dtype: torch.dtype,
        device: torch.device,
        rows: slice | None = None,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.view = name, _one_more if centred else None
        self.index = () if rows is None else (rows,)
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def in_place(self, x: torch.Tensor) -> torch.Tensor:
        """`x` may be a strided view, such as the heads inside a fused projection."""
        rms_norm_(x, self.weight, self.eps)
        return x

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """residual += x; x = norm(residual). Both in place."""
        add_rms_norm_(x, residual, self.weight, self.eps)
        return x

    def scale_by(self, scale: float) -> None:
        self.weight.mul_(scale)

    def pieces(self) -> list[Piece]:
        return [Piece(self.weight, (Source(f"{self.name}.weight", self.index, self.view),))]


class WideNorm(RMSNorm):
    """A step after the other, and weighed before it is the model's dtype again: in `groups` by themselves."""

    groups = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float().unflatten(-1, (self.groups, -1))
        mean = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(mean + self.eps)
        return (self.weight * wide.flatten(-2)).to(x.dtype)

    def in_place(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self(x))

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return self(residual.add_(x))


class MeanNorm(nn.Module):
    """Of what is left when the mean is taken away, in most models by weights and, in some, a bias."""

    def __init__(
        self,
        name: str,
        size: int,
        eps: float,
        dtype: torch.dtype,
        device: torch.device,
        biased: bool = False,
        weighs: bool = True,
    ) -> None:
        super().__init__()
        self.name, self.eps = name, eps
        one = torch.empty(size, dtype=dtype, device=device)
        self.weight = nn.Parameter(one, requires_grad=False) if weighs else None
        self.bias = nn.Parameter(torch.empty_like(one), requires_grad=False) if biased else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return mean_norm(x, self.weight, self.bias, self.eps)

    def in_place(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self(x))

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """residual += x, in place; its norm."""
        return self(residual.add_(x))

    def pieces(self) -> list[Piece]:
        told = {"weight": self.weight, "bias": self.bias}
        return [Piece(one, (Source(f"{self.name}.{own}"),)) for own, one in told.items() if one is not None]


@opaque_op("sgl_tune::mean_norm", mutates_args=())
def mean_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    return nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


@mean_norm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float) -> torch.Tensor:
    return torch.empty_like(x)


def _one_more(weight: torch.Tensor) -> torch.Tensor:
    return weight + 1


@opaque_op("sgl_tune::rms_norm", mutates_args=())
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if x.is_cuda:
        from runtime.layers import kernels

        out = torch.empty_like(x)
        kernels.rms_norm(x, out, weight, eps)
        return out
    return _normalized(x, weight, eps)


@rms_norm.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.empty_like(x)


@opaque_op("sgl_tune::rms_norm_", mutates_args=("x",))
def rms_norm_(x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    if x.is_cuda:
        from runtime.layers import kernels

        kernels.rms_norm(x, x, weight, eps)
    else:
        x.copy_(_normalized(x, weight, eps))


@rms_norm_.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    return None


@opaque_op("sgl_tune::add_rms_norm_", mutates_args=("x", "residual"))
def add_rms_norm_(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    if x.is_cuda:
        from runtime.layers import kernels

        kernels.add_rms_norm(x, residual, weight, eps)
    else:
        residual.add_(x)
        x.copy_(_normalized(residual, weight, eps))


@add_rms_norm_.register_fake
def _(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    return None


def _normalized(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide.to(x.dtype) * weight


def weighed_norm(rows: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Of rows that are weighed before they are normed."""
    weighed = rows if weight is None else rows * weight
    return F.rms_norm(weighed.float(), rows.shape[-1:], None, eps).to(rows.dtype)
