"""The kernels of several residual streams: each allocates what it answers and nothing else."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from runtime.layers.opaque import opaque_op


@opaque_op("sgl_tune::collapse_streams", mutates_args=())
def collapse(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    steps: int,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """streams [T, S, H] -> a row [T, H], what each stream gets of the answer [T, S], and of each other one
    [T, S, S], whose rows and columns are made to sum to one."""
    if streams.is_cuda:
        from runtime.layers import stream_kernels

        return stream_kernels.collapse(streams, matrix, base, scale, steps, eps, norm_eps)
    count = streams.shape[1]
    sizes = [count, count, count * count]
    weights = _weights(streams, matrix, norm_eps).split(sizes, dim=-1)
    pre, post, mixed = (
        part * one + own
        for part, one, own in zip(weights, scale.float(), base.float().split(sizes), strict=True)
    )
    mixed = mixed.unflatten(-1, (count, count)).softmax(-1) + eps
    for step in range(2 * steps - 1):  # columns, then rows and columns by turns
        mixed = mixed / (mixed.sum(-1 if step % 2 else -2, keepdim=True) + eps)
    row = torch.einsum("ts,tsh->th", pre.sigmoid() + eps, streams.float())
    return row.to(streams.dtype), 2 * post.sigmoid(), mixed


@collapse.register_fake
def _(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    steps: int,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens, count, width = streams.shape
    return (
        streams.new_empty(tokens, width),
        streams.new_empty(tokens, count, dtype=torch.float32),
        streams.new_empty(tokens, count, count, dtype=torch.float32),
    )


@opaque_op("sgl_tune::spread_streams", mutates_args=())
def spread(
    answer: torch.Tensor, streams: torch.Tensor, post: torch.Tensor, mixed: torch.Tensor
) -> torch.Tensor:
    """answer [T, H] and streams [T, S, H] -> the next streams."""
    if streams.is_cuda:
        from runtime.layers import stream_kernels

        return stream_kernels.spread(answer, streams, post, mixed)
    kept = torch.einsum("tij,tih->tjh", mixed, streams.float())
    return (kept + post[..., None] * answer[:, None].float()).to(streams.dtype)


@spread.register_fake
def _(answer: torch.Tensor, streams: torch.Tensor, post: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(streams)


@opaque_op("sgl_tune::collapse_streams_apart", mutates_args=())
def collapse_apart(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    magnitude: float,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `collapse`, of streams that are not mixed: none is given more of the answer than `magnitude`."""
    if streams.is_cuda:
        from runtime.layers import stream_kernels

        return stream_kernels.collapse_apart(streams, matrix, base, scale, magnitude, eps, norm_eps)
    count = streams.shape[1]
    weights, own = _weights(streams, matrix, norm_eps).split(count, dim=-1), base.float().split(count)
    pre, post = (
        (part * one + more).sigmoid() for part, one, more in zip(weights, scale.float(), own, strict=True)
    )
    row = torch.einsum("ts,tsh->th", pre + eps, streams.float())
    return row.to(streams.dtype), magnitude * post + eps


@collapse_apart.register_fake
def _(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    magnitude: float,
    eps: float,
    norm_eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, count, width = streams.shape
    return streams.new_empty(tokens, width), streams.new_empty(tokens, count, dtype=torch.float32)


@opaque_op("sgl_tune::spread_streams_apart", mutates_args=())
def spread_apart(answer: torch.Tensor, streams: torch.Tensor, post: torch.Tensor) -> torch.Tensor:
    """answer [T, H] and streams [T, S, H] -> the next streams, each with its part of the answer."""
    if streams.is_cuda:
        from runtime.layers import stream_kernels

        return stream_kernels.spread(answer, streams, post, None)
    return (streams.float() + post[..., None] * answer[:, None].float()).to(streams.dtype)


@spread_apart.register_fake
def _(answer: torch.Tensor, streams: torch.Tensor, post: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(streams)


@opaque_op("sgl_tune::gathered_streams", mutates_args=())
def gathered(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    norm_eps: float,
) -> torch.Tensor:
    """streams [T, S, H] -> [T, H]."""
    if streams.is_cuda:
        from runtime.layers import stream_kernels

        return stream_kernels.gathered(streams, matrix, base, scale, eps, norm_eps)
    shares = (_weights(streams, matrix, norm_eps) * scale.float() + base.float()).sigmoid() + eps
    return torch.einsum("ts,tsh->th", shares, streams.float()).to(streams.dtype)


@gathered.register_fake
def _(
    streams: torch.Tensor,
    matrix: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    eps: float,
    norm_eps: float,
) -> torch.Tensor:
    return streams.new_empty(streams.shape[0], streams.shape[2])


def _weights(streams: torch.Tensor, matrix: torch.Tensor, eps: float) -> torch.Tensor:
    """Of all streams as one normed row."""
    row = streams.flatten(1).float()
    return F.linear(row * torch.rsqrt(row.square().mean(-1, keepdim=True) + eps), matrix.float())
