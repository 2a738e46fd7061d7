"""What a layer calls: write the new keys and values to the pool, then attend to all of the request's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import GqaPool, KVPool, LatentPool
from runtime.layers.attention import ops

SCORE_BYTES = 512 << 20  # of the indexer's scores at a time: a long prefill's would take gigabytes


@dataclass(frozen=True, slots=True, eq=False)
class AttentionLayer:
    """`window` tokens are seen, the query's own included, or those before it in a `chunk`; `sinks` [heads]
    join each head's softmax unread. Behind `growth` tokens scores grow with a query's position. `both_ways`:
    tokens behind a query are seen, too, as many as before it."""

    layer_id: int
    scale: float
    window: int | None = None
    sinks: torch.Tensor | None = None
    cap: float | None = None
    chunk: int | None = None
    growth: int | None = None
    both_ways: bool = False


def attend(
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    layer: AttentionLayer,
    batch: ForwardBatch,
    pool: KVPool,
    chosen: torch.Tensor | None = None,
    block: int = 1,
    sinks: torch.Tensor | None = None,
    by_distance: torch.Tensor | None = None,
) -> torch.Tensor:
    """q [T, heads, D], k [T, kv heads, D] and v [T, kv heads, E] of the new tokens -> [T, heads, E];
    nobody's are 0. Without `k` and `v` those of another layer are read. `chosen` [T, kv heads, K] are the
    blocks of tokens that are seen: see `choose_blocks`. `sinks` [T, heads] are each token's own. What keys of
    each distance are given is `by_distance` [T, heads, extent]."""
    assert isinstance(pool.cache, GqaPool)
    keys, values = pool.cache.keys(layer.layer_id), pool.cache.values(layer.layer_id)
    slot_map = pool.cache.slot_map(layer.layer_id)
    for buffer, rows in ((keys, k), (values, v)):
        if rows is not None:
            ops.store_rows(buffer, batch.out_cache_loc, rows, slot_map=slot_map)
    return ops.paged_attention(
        q,
        keys,
        values,
        pool.requests.table,
        batch.req_pool_indices,
        batch.seq_lens,
        batch.query_starts,
        batch.max_query_len,
        layer.scale,
        layer.window or 0,
        layer.sinks if sinks is None else sinks,
        slot_map,
        layer.cap or 0.0,
        layer.chunk or 0,
        chosen,
        block,
        layer.growth or 0,
        by_distance,
        layer.both_ways,
    )


def attend_latent(
    q: torch.Tensor,
    latent: torch.Tensor,
    value_dim: int,
    layer: AttentionLayer,
    batch: ForwardBatch,
    pool: KVPool,
    selected: torch.Tensor | None = None,
) -> torch.Tensor:
    """Absorbed MLA: q [T, heads, latent + rotary], latent [T, latent + rotary] -> [T, heads, value_dim].

    `selected` [T, K] int32 are the positions a token may see, -1 for none: see `select_tokens`.
    """
    assert isinstance(pool.cache, LatentPool)
    latents, slot_map = pool.cache.latents(layer.layer_id), pool.cache.slot_map(layer.layer_id)
    rotary = latent.shape[-1] - value_dim
    ops.store_rows(latents, batch.out_cache_loc, latent.unsqueeze(1), rotary, slot_map=slot_map)
    return ops.latent_attention(
        q,
        latents,
        pool.requests.table,
        batch.req_pool_indices,
        batch.seq_lens,
        batch.query_starts,
        batch.max_query_len,
        value_dim,
        layer.scale,
        selected,
        layer.sinks,
        layer.window or 0,
        slot_map,
    )


def select_tokens(
    q: torch.Tensor,
    k: torch.Tensor,
    head_weights: torch.Tensor,
    count: int,
    layer_id: int,
    batch: ForwardBatch,
    pool: KVPool,
) -> torch.Tensor | None:
    """The `count` earlier positions that the indexer scores highest for each token, [T, count] int32.

    Scores are sum over heads of weight x relu(q . k) with q [T, heads, D], k [T, D], weights [T, heads]. The
    keys are always stored; `None` when no request is long enough for a choice.
    """
    assert isinstance(pool.cache, LatentPool)
    keys = pool.cache.index_keys(layer_id)
    ops.store_rows(keys, batch.out_cache_loc, k)
    return highest(q, keys, head_weights, count, batch, pool)


def highest(
    q: torch.Tensor,
    keys: torch.Tensor,
    head_weights: torch.Tensor,
    count: int,
    batch: ForwardBatch,
    pool: KVPool,
    rate: int = 1,
) -> torch.Tensor | None:
    """As `select_tokens`, of `keys` that are kept; of groups of `rate` tokens, whose last has their key."""
    width = batch.max_seq_len // rate
    if width <= count:
        return None
    selected = torch.empty(batch.num_tokens, count, dtype=torch.int32, device=q.device)
    rows = max(1, SCORE_BYTES // (4 * width))
    for first in range(0, batch.num_tokens, rows):
        part = selected[first : first + rows]
        scores = ops.index_scores(
            q,
            keys,
            head_weights,
            pool.requests.table,
            batch.req_pool_indices,
            batch.seq_lens,
            batch.query_starts,
            batch.max_query_len,
            batch.max_seq_len,
            first,
            part.shape[0],
            rate,
        )
        best = scores.topk(count, dim=-1, sorted=False)
        part.copy_(best.indices.masked_fill_(best.values == float("-inf"), -1))
    return selected
