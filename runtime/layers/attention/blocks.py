"""Which blocks of a request's tokens each KV head sees: chosen by an indexer's heads."""

from __future__ import annotations

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import IndexedPool, KVPool
from runtime.layers.attention import ops
from runtime.layers.attention.base import SCORE_BYTES
from runtime.server.layer_config import BlockConfig


def choose_blocks(
    q: torch.Tensor, k: torch.Tensor, config: BlockConfig, layer_id: int, batch: ForwardBatch, pool: KVPool
) -> torch.Tensor | None:
    """By q [T, heads, D] of an indexer and k [T, D], which are kept: [T, heads, blocks] int32, -1 for none.
    `None` when no request is long enough for a choice."""
    assert isinstance(pool.cache, IndexedPool)
    keys = pool.cache.index_keys(layer_id)
    ops.store_rows(keys, batch.out_cache_loc, k)
    if batch.max_seq_len <= config.seen:
        return None
    chosen = torch.empty(*q.shape[:2], config.top_k, dtype=torch.int32, device=q.device)
    a_row = 4 * q.shape[1] * -(-batch.max_seq_len // config.block_size)
    rows = max(1, SCORE_BYTES // a_row)
    for first in range(0, batch.num_tokens, rows):
        part = chosen[first : first + rows]
        scores = ops.block_scores(
            q,
            keys,
            pool.requests.table,
            batch.req_pool_indices,
            batch.seq_lens,
            batch.query_starts,
            batch.max_query_len,
            batch.max_seq_len,
            first,
            part.shape[0],
            config.block_size,
            config.local_blocks,
        )
        best = scores.topk(config.top_k, dim=-1, sorted=False)
        part.copy_(best.indices.masked_fill_(best.values == float("-inf"), -1))
    return chosen
