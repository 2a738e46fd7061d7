"""Batches of prompts over a pool, as a scheduler would make them: each request has slots of its own."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from runtime.forward.batch import ForwardBatch, ForwardMode, LogitsMode, packed
from runtime.forward.kv_pool import GqaPool, KVPool


def make_extend_batch(
    tokens: Sequence[Sequence[int]],
    requests: Sequence[int],
    pool: KVPool,
    prefix_lens: Sequence[int] | None = None,
    mode: ForwardMode = ForwardMode.EXTEND,
    logits_mode: LogitsMode = LogitsMode.LAST,
) -> ForwardBatch:
    """New `tokens` of each request behind the prefix that the pool holds."""
    lens, device = [len(part) for part in tokens], pool.table.device
    prefixes = [0] * len(lens) if prefix_lens is None else list(prefix_lens)
    parts = [
        _slots(pool, request, prefix, length)
        for request, prefix, length in zip(requests, prefixes, lens, strict=True)
    ]
    batch = packed(mode, lens, prefixes, [token for part in tokens for token in part], device)
    slots = torch.cat([torch.zeros(0, dtype=torch.int64, device=device), *parts])
    rows = torch.tensor(list(requests), dtype=torch.int64, device=device)
    return replace(batch, out_cache_loc=slots, req_pool_indices=rows, logits_mode=logits_mode)


def make_decode_batch(
    tokens: Sequence[int], requests: Sequence[int], pool: KVPool, prefix_lens: Sequence[int]
) -> ForwardBatch:
    """One new token for each request, at position `prefix_lens[i]`."""
    return make_extend_batch([[token] for token in tokens], requests, pool, prefix_lens, ForwardMode.DECODE)


def _slots(pool: KVPool, request: int, first: int, count: int) -> torch.Tensor:
    """Row `request` has as many slots as it is long, the last position's first."""
    last = request * pool.table.shape[1]
    slots = torch.arange(last - first, last - first - count, -1, device=pool.table.device)
    pool.table[request, first : first + count] = slots
    if isinstance(pool.cache, GqaPool) and pool.cache.sliding:
        pool.cache.sliding.map[slots] = pool.cache.sliding.rows - slots
    return slots
