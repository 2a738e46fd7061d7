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
    """`window` tokens are seen, the query's own included; `sinks` [heads] join each head's softmax unread."""

    layer_id: int
    scale: float
    window: int | None = None
    sinks: torch.Tensor | None = None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    layer: AttentionLayer,
    batch: ForwardBatch,
    pool: KVPool,
) -> torch.Tensor:
    """q [T, heads, D], k [T, kv heads, D] and v [T, kv heads, D] of the new tokens -> [T, heads, D];
    nobody's are 0."""
    assert isinstance(pool.cache, GqaPool)
    keys, values = pool.cache.keys(layer.layer_id), pool.cache.values(layer.layer_id)
    slot_map = pool.cache.slot_map(layer.layer_id)
    for buffer, rows in ((keys, k), (values, v)):
        ops.store_rows(buffer, batch.out_cache_loc, rows, slot_map=slot_map)
    return ops.paged_attention(
        q,
        keys,
        values,
        *_paging(batch, pool),
        layer.scale,
        layer.window or 0,
        layer.sinks,
        slot_map,
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
    latents = pool.cache.latents(layer.layer_id)
    ops.store_rows(latents, batch.out_cache_loc, latent.unsqueeze(1), latent.shape[-1] - value_dim)
    return ops.latent_attention(q, latents, *_paging(batch, pool), value_dim, layer.scale, selected)


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
    width = batch.max_seq_len
    if width <= count:
        return None
    selected = torch.empty(batch.num_tokens, count, dtype=torch.int32, device=q.device)
    rows = max(1, SCORE_BYTES // (4 * width))
    for first in range(0, batch.num_tokens, rows):
        part = selected[first : first + rows]
        scores = ops.index_scores(q, keys, head_weights, *_paging(batch, pool), width, first, part.shape[0])
        best = scores.topk(count, dim=-1, sorted=False)
        part.copy_(best.indices.masked_fill_(best.values == float("-inf"), -1))
    return selected


def _paging(
    batch: ForwardBatch, pool: KVPool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    return pool.table, batch.req_pool_indices, batch.seq_lens, batch.query_starts, batch.max_query_len
