"""The kernel of residuals that are kept: it allocates what it answers, and one score of each."""

from __future__ import annotations

import torch

from runtime.layers.opaque import opaque_op


@opaque_op("sgl_tune::mixed_snapshots", mutates_args=())
def mixed(
    kept: torch.Tensor, last: torch.Tensor, count: int, scored: torch.Tensor, eps: float
) -> torch.Tensor:
    """The first `count` of kept [T, N, H], and last [T, H] -> their mean [T, H], weighted by a softmax of
    their scores: of each, normed, with scored [H]."""
    if last.is_cuda:
        from runtime.layers import snapshot_kernels

        return snapshot_kernels.mixed(kept, last, count, scored, eps)
    rows = torch.cat((kept[:, :count], last[:, None]), dim=1).float()
    scores = (rows @ scored) * torch.rsqrt(rows.square().mean(-1) + eps)
    return torch.einsum("tn,tnh->th", scores.softmax(-1), rows).to(last.dtype)


@mixed.register_fake
def _(kept: torch.Tensor, last: torch.Tensor, count: int, scored: torch.Tensor, eps: float) -> torch.Tensor:
    return last.new_empty(last.shape)
