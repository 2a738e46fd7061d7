"""The only place that knows how rows of all attention-DP ranks come together, and the sizes of their buffers.

Under DP attention every group of ranks holds its own requests, but MLP, experts and LM head work on the rows
of all groups: rows are gathered into one buffer before, and each rank takes its own rows back after. A start
runs dummy batches alone, in which every group has as many rows as this one.
"""

from __future__ import annotations

import torch

from runtime.forward.comm import Communicator


def padded(rows: int, comm: Communicator) -> int:
    """Return a group's rows, padded so that each of its attention-TP ranks can bring a part."""
    ranks = comm.size("attn_tp")
    return -(-rows // ranks) * ranks


def gather(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return the rows of every DP rank for this rank's [rows, H]; `x` itself if nothing is gathered."""
    groups = comm.size("attn_dp")
    if groups == 1:
        return x
    rows = padded(x.shape[0], comm)
    out = x.new_empty(groups * rows, *x.shape[1:])
    # Attention-TP ranks hold the same rows, so each brings its own part of them.
    part = pad_rows(x, rows).tensor_split(comm.size("attn_tp"))[comm.rank("attn_tp")]
    comm.all_gather_into(out, part, "tp")
    return out


def scatter(x: torch.Tensor, rows: int, comm: Communicator) -> torch.Tensor:
    """Sum the TP ranks' partial sums [buffer, H], and return this rank's rows."""
    if comm.size("attn_dp") == 1:
        return comm.all_reduce(x, "tp")
    part = x.new_empty(x.shape[0] // comm.size("tp"), *x.shape[1:])
    comm.reduce_scatter_into(part, x, "tp")
    if comm.size("attn_tp") == 1:
        return part[:rows]
    local = x.new_empty(padded(rows, comm), *x.shape[1:])
    comm.all_gather_into(local, part, "attn_tp")
    return local[:rows]


def gather_rows(x: torch.Tensor, comm: Communicator) -> torch.Tensor:
    """Return every DP rank's rows, in rank order: each writes its own into zeros, and all are summed."""
    rows = x.shape[0]
    out = x.new_zeros(comm.size("attn_dp") * rows, *x.shape[1:])
    if comm.rank("attn_tp") == 0:
        out.narrow(0, comm.rank("attn_dp") * rows, rows).copy_(x)
    return comm.all_reduce(out, "tp")


def own_rows(x: torch.Tensor, rows: int, comm: Communicator) -> torch.Tensor:
    """Return a copy of this rank's rows of `x`, so that the large buffer can be freed."""
    local = x.new_empty(rows, *x.shape[1:])
    return local.copy_(x.narrow(0, comm.rank("attn_dp") * rows, rows))


def pad_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    if x.shape[0] == rows:
        return x
    out = x.new_full((rows, *x.shape[1:]), 0)
    out[: x.shape[0]].copy_(x)
    return out
