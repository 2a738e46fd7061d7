"""What a layer calls: it writes the new keys and values to the pool, then attends to all of the request's."""

from typing import Any

import torch
from torch import Tensor

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_packing import FP8, FP8_MAX, PackedRow
from runtime.forward.kv_pool import GqaPool, KVPool, LatentPool
from runtime.layers.attention import reference
from runtime.layers.attention.reference import AttentionLayer, Paging
from runtime.simulate.kernel import in_place, kernel

SCORE_BYTES = 512 << 20  # the indexer's scores at a time: all of a long prefill would take gigabytes


def attend(
    q: Tensor, k: Tensor, v: Tensor, layer: AttentionLayer, batch: ForwardBatch, pool: KVPool
) -> Tensor:
    """Attend with q [T, heads, D], k [T, kv heads, D] and v [T, kv heads, D] of the new tokens. Return [T,
    heads, D], which is 0 in rows that belong to no request."""
    assert isinstance(pool.cache, GqaPool)
    keys, values = pool.cache.keys(layer.layer_id), pool.cache.values(layer.layer_id)
    paging = _paging(batch, pool, pool.cache.slot_map(layer.layer_id))
    for buffer, rows in ((keys, k), (values, v)):
        store_rows(buffer, batch.out_cache_loc, rows, 0, paging.slot_map)
    return paged_attention(q, keys, values, paging, layer)


def attend_latent(
    q: Tensor,
    latent: Tensor,
    value_dim: int,
    layer: AttentionLayer,
    batch: ForwardBatch,
    pool: KVPool,
    selected: Tensor | None = None,
) -> Tensor:
    """Absorbed MLA: q [T, heads, latent + rotary], latent [T, latent + rotary] -> [T, heads, value_dim].

    `selected` [T, K] int32 are the positions that a token may see; -1 is unused. See `select_tokens`.
    """
    assert isinstance(pool.cache, LatentPool)
    latents = pool.cache.latents(layer.layer_id)
    store_rows(latents, batch.out_cache_loc, latent.unsqueeze(1), latent.shape[-1] - value_dim)
    return latent_attention(q, latents, _paging(batch, pool), value_dim, layer.scale, selected)


def select_tokens(
    q: Tensor, k: Tensor, head_weights: Tensor, count: int, layer_id: int, batch: ForwardBatch, pool: KVPool
) -> Tensor | None:
    """Return the `count` earlier positions that the indexer scores highest for each token, [T, count] int32.

    A score is the sum over heads of weight x relu(q . k) with q [T, heads, D], k [T, D], weights [T, heads].
    The keys are always stored. Returns None if no request has more than `count` tokens.
    """
    assert isinstance(pool.cache, LatentPool)
    keys = pool.cache.index_keys(layer_id)
    store_rows(keys, batch.out_cache_loc, k)
    width = batch.max_seq_len
    if width <= count:
        return None
    selected = torch.empty(batch.num_tokens, count, dtype=torch.int32, device=q.device)
    rows = max(1, SCORE_BYTES // (4 * width))
    for first in range(0, batch.num_tokens, rows):
        part = selected[first : first + rows]
        scores = index_scores(q, keys, head_weights, _paging(batch, pool), width, first, part.shape[0])
        best = scores.topk(count, dim=-1, sorted=False)
        part.copy_(best.indices.masked_fill_(best.values == float("-inf"), -1))
    return selected


def _paging(batch: ForwardBatch, pool: KVPool, slot_map: Tensor | None = None) -> Paging:
    rows = batch.req_pool_indices, batch.seq_lens, batch.query_starts
    return Paging(pool.table, *rows, batch.max_query_len, slot_map)


@kernel(in_place)
def store_rows(
    buffer: Tensor, slots: Tensor, rows: Tensor, plain: int = 0, slot_map: Tensor | None = None
) -> None:
    """Write row t to slot `slots[t]`. In a packed buffer the last `plain` values stay unquantized."""
    if buffer.dtype is torch.uint8:
        rows = PackedRow(rows.shape[-1] - plain, plain).pack(rows)
    elif buffer.dtype is FP8:
        rows = rows.float().clamp(-FP8_MAX, FP8_MAX)
    buffer[slots if slot_map is None else slot_map[slots]] = rows.to(buffer.dtype)


@kernel(lambda q, *_: q.new_empty(q.shape))
def paged_attention(q: Tensor, keys: Tensor, values: Tensor, paging: Paging, layer: AttentionLayer) -> Tensor:
    """Attend with q [T, heads, D] to keys and values [slots, kv heads, D]."""
    return _kernels(q).grouped(q, keys, values, paging, layer)


@kernel(lambda q, latents, paging, value_dim, *_: q.new_empty(*q.shape[:2], value_dim))
def latent_attention(
    q: Tensor, latents: Tensor, paging: Paging, value_dim: int, scale: float, selected: Tensor | None
) -> Tensor:
    """Attend with q [T, heads, D] to latents [slots, 1, D] or packed; the first `value_dim` are values."""
    return _kernels(q).latent(q, latents, paging, value_dim, scale, selected)


def _kernels(q: Tensor) -> Any:
    if q.is_cuda:
        from runtime.layers.attention import flash

        return flash
    return reference


def _scores(q: Tensor, *given: Any) -> Tensor:
    width, _, count = given[-3:]
    return q.new_empty(count, width, dtype=torch.float32)


@kernel(_scores)
def index_scores(
    q: Tensor, keys: Tensor, head_weights: Tensor, paging: Paging, width: int, first: int, count: int
) -> Tensor:
    """Return [count, width] fp32: the scores of every position for tokens from `first` on; -inf if later."""
    out = q.new_full((count, width), float("-inf"), dtype=torch.float32)
    if q.is_cuda:
        from runtime.layers.attention import index_kernel

        index_kernel.index_scores(q, keys, head_weights, paging, out, first)
    else:
        reference.index_scores(q, keys, head_weights, paging, out, first)
    return out
