"""Which pools of a request's tokens each token sees: chosen by an indexer, on a CPU."""

from __future__ import annotations

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool, LatentPool
from runtime.layers.attention import ops
from runtime.layers.attention.reference import Paging, pool_scores
from runtime.layers.opaque import opaque_op
from runtime.server.errors import Unsupported


def choose_pools(
    q: torch.Tensor,
    kept: torch.Tensor,
    places: torch.Tensor,
    head_weights: torch.Tensor,
    count: int,
    layer_id: int,
    batch: ForwardBatch,
    pool: KVPool,
) -> torch.Tensor | None:
    """The tokens of those pools that an indexer's q [T, heads, D] wants most, `count` of them, and those that
    no pool has yet: [T, count + pool - 1] int32, -1 for none.

    `kept` [T, 2 D] are a token's key and how much each of its channels counts, beside `places` [pool, D].
    Scores are sums over heads of weight x relu(q . k). `None` when no request is long enough for a choice.
    """
    assert isinstance(pool.cache, LatentPool)
    states, size = pool.cache.index_keys(layer_id), places.shape[0]
    if pool.cache.keeps_pooled:
        ops.store_rows(states, batch.out_cache_loc, kept)
    if batch.max_seq_len < count + size:
        return None
    return chosen_pools(
        q,
        states,
        places,
        head_weights,
        pool.requests.table,
        batch.req_pool_indices,
        batch.seq_lens,
        batch.query_starts,
        batch.max_query_len,
        count,
    )


@opaque_op("sgl_tune::chosen_pools", mutates_args=())
def chosen_pools(
    q: torch.Tensor,
    states: torch.Tensor,
    places: torch.Tensor,
    head_weights: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    count: int,
) -> torch.Tensor:
    size = places.shape[0]
    if q.is_cuda:
        raise Unsupported(
            f"this runtime has no kernels that choose pools: of {count + size - 1} tokens at most"
        )
    paging = Paging(table, requests, seq_lens, query_starts, max_query_len)
    chosen = torch.full((q.shape[0], count + size - 1), -1, dtype=torch.int32)
    inside = torch.arange(size)
    for rows, positions, scores in pool_scores(q, states, places, head_weights, paging):
        best = scores.topk(min(count // size, scores.shape[-1]), dim=-1)
        found = best.indices[..., None] * size + inside
        found = found.masked_fill(best.values[..., None] == float("-inf"), -1).flatten(1)
        chosen[rows, : found.shape[-1]] = found.int()
        last = (positions + 1)[:, None] // size * size + inside[:-1]
        chosen[rows, count:] = last.masked_fill(last > positions[:, None], -1).int()
    return chosen


@chosen_pools.register_fake
def _(
    q: torch.Tensor,
    states: torch.Tensor,
    places: torch.Tensor,
    head_weights: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    count: int,
) -> torch.Tensor:
    return torch.empty(q.shape[0], count + places.shape[0] - 1, dtype=torch.int32, device=q.device)
