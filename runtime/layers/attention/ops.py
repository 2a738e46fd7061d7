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


store_rows.register_fake(lambda *_, **__: None)


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
) -> torch.Tensor:
    """q [T, heads, D] over keys and values [slots, kv heads, D] -> [T, heads, D]; 0 is no `window`."""
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len, slot_map)
    if q.is_cuda:
        from runtime.layers.attention import flash

        return flash.grouped(q, keys, values, paging, scale, window, sinks)
    return reference.grouped(q, keys, values, paging, scale, window, sinks)


paged_attention.register_fake(lambda q, *_, **__: q.new_empty(q.shape))


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
) -> torch.Tensor:
    """q [T, heads, D] over latents [slots, 1, D] (or packed): the first `value_dim` are the values."""
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len)
    if q.is_cuda:
        from runtime.layers.attention import flash

        return flash.latent(q, latents, paging, value_dim, scale, selected)
    return reference.latent(q, latents, paging, value_dim, scale, selected)


latent_attention.register_fake(lambda q, *given: q.new_empty(*q.shape[:2], given[6]))


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
) -> torch.Tensor:
    """[count, max_seq_len] fp32: how much token `first` and the next want each position; -inf if later."""
    out = q.new_full((count, max_seq_len), float("-inf"), dtype=torch.float32)
    paging = reference.Paging(table, requests, seq_lens, query_starts, max_query_len)
    if q.is_cuda:
        from runtime.layers.attention import row_kernels

        row_kernels.index_scores(q, keys, head_weights, paging, out, first)
    else:
        reference.index_scores(q, keys, head_weights, paging, out, first)
    return out


@index_scores.register_fake
def _(q: torch.Tensor, *given: int) -> torch.Tensor:
    max_seq_len, _, count = given[-3:]
    return q.new_empty(count, max_seq_len, dtype=torch.float32)
