"""Attention over a window and groups of tokens behind it: each op allocates what it answers and nothing else.

Without kernels: on a CPU groups are made anew of what their tokens left, and on meta tensors they are none.
"""

from __future__ import annotations

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import group_reference as reference
from runtime.layers.attention.reference import Paging
from runtime.layers.opaque import opaque_op
from runtime.layers.scaled_linear import dequantize_blocks

Placed = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def paging(batch: ForwardBatch, pool: KVPool) -> Placed:
    """As every op here is given it: the table of slots, whose rows, how long, from where, the new slots."""
    table = pool.requests.table
    return table, batch.req_pool_indices, batch.seq_lens, batch.query_starts, batch.out_cache_loc


@opaque_op("sgl_tune::turn_", mutates_args=("x",))
def turn_(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, back: bool = False) -> None:
    """The last values of each head of x [T, heads, D], as many as the table is wide, by pairs, in place."""
    reference.turn(x, table[positions], back)


@turn_.register_fake
def _(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, back: bool = False) -> None:
    return None


@opaque_op("sgl_tune::unit_norm_", mutates_args=("x",))
def unit_norm_(x: torch.Tensor, eps: float) -> None:
    """Each head of x [T, heads, D], without weights, in place."""
    x.copy_(x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps).to(x.dtype))


@unit_norm_.register_fake
def _(x: torch.Tensor, eps: float) -> None:
    return None


@opaque_op("sgl_tune::grouped_keys", mutates_args=("buffer",))
def grouped_keys(
    new: torch.Tensor,
    buffer: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    slots: torch.Tensor,
    rate: int,
    overlaps: bool,
) -> torch.Tensor:
    """new [T, keys | gates] goes into the buffer's slots -> [requests, groups, D], normed and turned."""
    buffer[slots] = new.to(buffer.dtype)
    paged = Paging(table, requests, seq_lens, query_starts, 0)
    return reference.grouped_keys(buffer, bias, weight, eps, rope, paged, rate, overlaps)


@grouped_keys.register_fake
def _(
    new: torch.Tensor,
    buffer: torch.Tensor,
    bias: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    rope: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    slots: torch.Tensor,
    rate: int,
    overlaps: bool,
) -> torch.Tensor:
    return new.new_empty(requests.shape[0], 0, weight.shape[0])


@opaque_op("sgl_tune::choose_groups", mutates_args=())
def choose_groups(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    scale: float,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    slots: torch.Tensor,
    rate: int,
    count: int,
) -> torch.Tensor:
    """The `count` whole groups that score highest for each token, -1 where there are fewer: [T, count]."""
    paged = Paging(table, requests, seq_lens, query_starts, 0)
    return reference.choose_groups(q, keys, head_weights, scale, paged, rate, count)


@choose_groups.register_fake
def _(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    scale: float,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    slots: torch.Tensor,
    rate: int,
    count: int,
) -> torch.Tensor:
    return torch.empty(q.shape[0], count, dtype=torch.int32, device=q.device)


@opaque_op("sgl_tune::attend_groups", mutates_args=("buffer",))
def attend(
    q: torch.Tensor,
    new: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    slots: torch.Tensor,
    rate: int,
    window: int,
    scale: float,
) -> torch.Tensor:
    """new [T, D] goes into the buffer's slots; q [T, heads, D] sees a window of them, and those `groups` that
    are whole, or of these the `chosen` -> [T, heads, D]."""
    buffer[slots] = new.to(buffer.dtype)
    paged = Paging(table, requests, seq_lens, query_starts, 0)
    return reference.attend(q, buffer, groups, chosen, sinks, paged, rate, window, scale)


@attend.register_fake
def _(
    q: torch.Tensor,
    new: torch.Tensor,
    buffer: torch.Tensor,
    groups: torch.Tensor | None,
    chosen: torch.Tensor | None,
    sinks: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    slots: torch.Tensor,
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
