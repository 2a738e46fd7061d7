"""Attention over a window and groups of tokens behind it: each op allocates what it answers and nothing else.

The key of a group is kept where its last token's is: it is made when that token comes, once.
"""

from __future__ import annotations

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import group_reference as reference
from runtime.layers.attention.ops import store_rows
from runtime.layers.attention.reference import Paging
from runtime.layers.opaque import opaque_op
from runtime.layers.scaled_linear import dequantize_blocks

Placed = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]


def _paging(batch: ForwardBatch, pool: KVPool) -> Placed:
    return (
        pool.requests.table,
        batch.req_pool_indices,
        batch.seq_lens,
        batch.query_starts,
        batch.max_query_len,
    )


@opaque_op("sgl_tune::turn_", mutates_args=("x",))
def turn_(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, back: bool = False) -> None:
    """The last values of each head of x [T, heads, D], as many as the table is wide, by pairs, in place."""
    if x.is_cuda:
        from runtime.layers import kernels

        kernels.rope(x[..., -table.shape[1] :], table, positions, interleaved=True, back=back)
    else:
        reference.turn(x, table[positions], back)


@turn_.register_fake
def _(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, back: bool = False) -> None:
    return None


@opaque_op("sgl_tune::unit_norm_", mutates_args=("x",))
def unit_norm_(x: torch.Tensor, eps: float) -> None:
    """Each head of x [T, heads, D], without weights, in place."""
    if x.is_cuda:
        from runtime.layers import kernels

        kernels.unit_norm(x, eps)
    else:
        x.copy_(x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps).to(x.dtype))


@unit_norm_.register_fake
def _(x: torch.Tensor, eps: float) -> None:
    return None


def compress(
    new: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    batch: ForwardBatch,
    pool: KVPool,
    rate: int,
    overlaps: bool,
) -> None:
    """new [T, keys | gates] goes into the buffer's slots, and the keys of groups that are whole by it, normed
    and turned, into those of `groups`."""
    store_rows(buffer, batch.out_cache_loc, new)
    _group_keys(buffer, groups, bias, weight, eps, rope, *_paging(batch, pool), rate, overlaps)


@opaque_op("sgl_tune::group_keys", mutates_args=("groups",))
def _group_keys(
    buffer: torch.Tensor,
    groups: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    rate: int,
    overlaps: bool,
) -> None:
    paging = Paging(table, requests, seq_lens, query_starts, max_query_len)
    if buffer.is_cuda:
        from runtime.layers.attention import group_kernels

        group_kernels.group_keys(buffer, groups, bias, weight, eps, rope, paging, rate, overlaps)
    else:
        reference.group_keys(buffer, groups, bias, weight, eps, rope, paging, rate, overlaps)


@_group_keys.register_fake
def _(
    buffer: torch.Tensor,
    groups: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    rate: int,
    overlaps: bool,
) -> None:
    return None


def attend(
    q: torch.Tensor,
    new: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    batch: ForwardBatch,
    pool: KVPool,
    rate: int,
    window: int,
    scale: float,
) -> torch.Tensor:
    """new [T, D] goes into the buffer's slots; q [T, heads, D] sees a window of them, and those `groups` that
    are whole, or of these the `chosen` -> [T, heads, D]."""
    store_rows(buffer, batch.out_cache_loc, new)
    return _attend(q, buffer, groups, chosen, sinks, *_paging(batch, pool), rate, window, scale)


@opaque_op("sgl_tune::attend_groups", mutates_args=())
def _attend(
    q: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    rate: int,
    window: int,
    scale: float,
) -> torch.Tensor:
    paging = Paging(table, requests, seq_lens, query_starts, max_query_len)
    if q.is_cuda:
        from runtime.layers.attention import group_kernels

        return group_kernels.attend(q, buffer, groups, chosen, sinks, paging, rate, window, scale)
    return reference.attend(q, buffer, groups, chosen, sinks, paging, rate, window, scale)


@_attend.register_fake
def _(
    q: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    rate: int,
    window: int,
    scale: float,
) -> torch.Tensor:
    return torch.empty_like(q)


@opaque_op("sgl_tune::within_groups", mutates_args=())
def within_groups(
    answer: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None, block: list[int], groups: int
) -> torch.Tensor:
    """answer [T, heads, D] by groups of heads, each through a matrix of its own -> [T, groups x rank]."""
    whole = weight if scale is None else dequantize_blocks(weight, scale, block).to(answer.dtype)
    rows = answer.reshape(answer.shape[0], groups, -1).transpose(0, 1)
    products = torch.bmm(rows, whole.unflatten(0, (groups, -1)).transpose(1, 2))
    return products.transpose(0, 1).flatten(1)


@within_groups.register_fake
def _(
    answer: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor | None, block: list[int], groups: int
) -> torch.Tensor:
    return answer.new_empty(answer.shape[0], weight.shape[0])
