"""RMS norm as fused kernels, which allocate only the result; the form with a residual allocates nothing."""

import torch
from torch import nn

from runtime.simulate.kernel import in_place, kernel


class RMSNorm(nn.Module):
    """An RMS norm. `rows`: this rank's part of a split vector."""

    def __init__(
        self,
        name: str,
        size: int,
        eps: float,
        dtype: torch.dtype,
        device: torch.device,
        rows: slice | None = None,
    ) -> None:
        super().__init__()
        self.name, self.rows, self.eps = name, rows, eps
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def in_place(self, x: torch.Tensor) -> torch.Tensor:
        """Norm `x` in place. It may be a strided view, such as the heads inside a fused projection."""
        rms_norm_(x, self.weight, self.eps)
        return x

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Add `x` to `residual`, and replace `x` by the norm of the sum. Both in place."""
        add_rms_norm_(x, residual, self.weight, self.eps)
        return x


@kernel(lambda x, *_: torch.empty_like(x))
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    if x.is_cuda:
        from runtime.layers import kernels

        out = torch.empty_like(x)
        kernels.rms_norm(x, out, weight, eps)
        return out
    return _normalized(x, weight, eps)


@kernel(in_place)
def rms_norm_(x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    if x.is_cuda:
        from runtime.layers import kernels

        kernels.rms_norm(x, x, weight, eps)
    else:
        x.copy_(_normalized(x, weight, eps))


@kernel(in_place)
def add_rms_norm_(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    if x.is_cuda:
        from runtime.layers import kernels

        kernels.rms_norm(x, x, weight, eps, residual)
    else:
        residual.add_(x)
        x.copy_(_normalized(residual, weight, eps))


def _normalized(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide.to(x.dtype) * weight
