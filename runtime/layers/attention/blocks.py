"""Which blocks of a request's tokens each KV head sees: chosen by an indexer's heads, on a CPU."""

from __future__ import annotations

import torch

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import IndexedPool, KVPool
from runtime.layers.attention import ops
from runtime.layers.attention.reference import Paging, block_scores
from runtime.layers.opaque import opaque_op
from runtime.server.errors import Unsupported
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
    return chosen_blocks(
        q,
        keys,
        pool.requests.table,
        batch.req_pool_indices,
        batch.seq_lens,
        batch.query_starts,
        batch.max_query_len,
        config.block_size,
        config.top_k,
        config.local_blocks,
    )


@opaque_op("sgl_tune::chosen_blocks", mutates_args=())
def chosen_blocks(
    q: torch.Tensor,
    keys: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    size: int,
    count: int,
    local: int,
) -> torch.Tensor:
    if q.is_cuda:
        raise Unsupported(f"this runtime has no kernels that choose blocks: of {size * count} tokens at most")
    paging = Paging(table, requests, seq_lens, query_starts, max_query_len)
    chosen = torch.full((*q.shape[:2], count), -1, dtype=torch.int32)
    for rows, scores in block_scores(q, keys, paging, size, local):
        best = scores.topk(min(count, scores.shape[-1]), dim=-1)
        found = best.indices.masked_fill(best.values == float("-inf"), -1)
        chosen[rows, :, : found.shape[-1]] = found.int()
    return chosen


@chosen_blocks.register_fake
def _(
    q: torch.Tensor,
    keys: torch.Tensor,
    table: torch.Tensor,
    requests: torch.Tensor,
    seq_lens: torch.Tensor,
    query_starts: torch.Tensor,
    max_query_len: int,
    size: int,
    count: int,
    local: int,
) -> torch.Tensor:
    return torch.empty(*q.shape[:2], count, dtype=torch.int32, device=q.device)
