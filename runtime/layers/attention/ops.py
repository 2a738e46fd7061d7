"""The opaque ops of attention: each allocates its output and nothing else, alike on CPU, CUDA and meta."""

from __future__ import annotations

import torch

from runtime.layers.attention import reference
from runtime.layers.opaque import opaque_op


@opaque_op("sgl_tune::store_rows", mutates_args=("buffer",))
def store_rows(
    buffer: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor,
    plain: int = 0,
    slot_map: torch.Tensor | None = None,
) -> None:
    """Row t goes to slot `slots[t]` in the buffer's dtype; packed, the last `plain` values unquantized."""
    if buffer.is_cuda:
        from runtime.layers.attention import row_kernels

        row_kernels.store(buffer, slots, rows, plain, slot_map)
    else:
        reference.store(buffer, slots, rows, plain, slot_map)


@store_rows.register_fake
def _(
    buffer: torch.Tensor,
    slots: torch.Tensor,
    rows: torch.Tensor,
    plain: int = 0,
    slot_map: torch.Tensor | None = None,
) -> None:
    return None


@opaque_op("sgl_tune::paged_attention", mutates_args=())
def paged_attention(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    scale: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
    slot_map: torch.Tensor | None = None,
    cap: float = 0.0,
    chunk: int = 0,
    chosen: torch.Tensor | None = None,
    block: int = 1,
    growth: int = 0,
    by_distance: torch.Tensor | None = None,
    both_ways: bool = False,
) -> torch.Tensor:
    """q [T, heads, D] over keys [slots, kv heads, D] and values [slots, kv heads, E] -> [T, heads, E]; 0 is
    no `window`, no `chunk` and no `growth`. Of blocks of tokens, `chosen` [T, kv heads, K] are seen. `sinks`
    are [heads], or [T, heads]. `by_distance` [T, heads, extent] are added to scores of keys so far behind.
    `both_ways`: tokens behind a query are seen as those before it."""
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len, slot_map)
    if q.is_cuda:
        from runtime.layers.attention import flash

        made = flash.grouped
    else:
        made = reference.grouped
    own = window, sinks, cap, chunk, chosen, block, growth, by_distance, both_ways
    return made(q, keys, values, paging, scale, *own)


@paged_attention.register_fake
def _(
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    scale: float,
    window: int = 0,
    sinks: torch.Tensor | None = None,
    slot_map: torch.Tensor | None = None,
    cap: float = 0.0,
    chunk: int = 0,
    chosen: torch.Tensor | None = None,
    block: int = 1,
    growth: int = 0,
    by_distance: torch.Tensor | None = None,
    both_ways: bool = False,
) -> torch.Tensor:
    return q.new_empty(*q.shape[:2], values.shape[-1])


@opaque_op("sgl_tune::latent_attention", mutates_args=())
def latent_attention(
    q: torch.Tensor,
    latents: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    value_dim: int,
    scale: float,
    selected: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    window: int = 0,
    slot_map: torch.Tensor | None = None,
) -> torch.Tensor:
    """q [T, heads, D] over latents [slots, 1, D] (or packed): the first `value_dim` are the values. 0 is no
    `window`."""
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len, slot_map)
    if q.is_cuda:
        from runtime.layers.attention import flash

        return flash.latent(q, latents, paging, value_dim, scale, selected, sinks, window)
    return reference.latent(q, latents, paging, value_dim, scale, selected, sinks, window)


@latent_attention.register_fake
def _(
    q: torch.Tensor,
    latents: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    value_dim: int,
    scale: float,
    selected: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    window: int = 0,
    slot_map: torch.Tensor | None = None,
) -> torch.Tensor:
    return q.new_empty(*q.shape[:2], value_dim)


@opaque_op("sgl_tune::index_scores", mutates_args=())
def index_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    max_seq_len: int,
    first: int,
    count: int,
    rate: int = 1,
) -> torch.Tensor:
    """[count, max_seq_len] fp32: how much token `first` and the next want each position; -inf if later.
    Of groups of `rate` tokens, whose last has their key, each group: [count, max_seq_len // rate]."""
    out = q.new_full((count, max_seq_len // rate), float("-inf"), dtype=torch.float32)
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len)
    if q.is_cuda:
        from runtime.layers.attention import row_kernels

        row_kernels.index_scores(q, keys, head_weights, paging, out, first, rate)
    else:
        reference.index_scores(q, keys, head_weights, paging, out, first, rate)
    return out


@index_scores.register_fake
def _(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    max_seq_len: int,
    first: int,
    count: int,
    rate: int = 1,
) -> torch.Tensor:
    return q.new_empty(count, max_seq_len // rate, dtype=torch.float32)


@opaque_op("sgl_tune::block_scores", mutates_args=())
def block_scores(
    q: torch.Tensor,
    keys: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    max_seq_len: int,
    first: int,
    count: int,
    size: int,
    local: int,
) -> torch.Tensor:
    """[count, heads, blocks] fp32: how much q [T, heads, D] of token `first` and the next want each block, by
    its best token; -inf if later, and inf for the `local` last."""
    blocks = -(-max_seq_len // size)
    out = q.new_full((count, q.shape[1], blocks), float("-inf"), dtype=torch.float32)
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len)
    if q.is_cuda:
        from runtime.layers.attention import block_kernels

        block_kernels.block_scores(q, keys, paging, out, first, size, local)
    else:
        reference.block_scores(q, keys, paging, out, first, size, local)
    return out


@block_scores.register_fake
def _(
    q: torch.Tensor,
    keys: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    max_seq_len: int,
    first: int,
    count: int,
    size: int,
    local: int,
) -> torch.Tensor:
    return q.new_empty(count, q.shape[1], -(-max_seq_len // size), dtype=torch.float32)
