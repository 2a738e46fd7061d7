"""What SGLang keeps where a pool of tokens has one key: these keys, and the last tokens of each request.

Nothing of this runtime reads it: on a CPU it keeps all, and on a GPU a request sees all of its tokens.
"""

from __future__ import annotations

import torch

from runtime.forward.kv_packing import PackedRow
from runtime.forward.pool_shape import PoolShape, buffers
from runtime.server.layer_config import IndexerConfig


def pooled_keys(
    shape: PoolShape, indexer: IndexerConfig, requests: int
) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    """Keys, and of the last tokens keys and weights: srt/mem_cache/memory_pool.py, DSATokenToKVPool, where
    padding is a request, too, and so is one that is none."""
    a_key, last = (PackedRow(indexer.head_dim).bytes,), (indexer.pool, indexer.head_dim)
    pools, rows = shape.rows // indexer.pool, requests + 2
    layers = shape.layers
    keys = buffers(shape, dict.fromkeys(layers, a_key), torch.uint8, dict.fromkeys(layers, pools))
    of_keys, of_weights = (
        buffers(shape, dict.fromkeys(layers, last), torch.bfloat16, dict.fromkeys(layers, rows))
        for _ in range(2)
    )
    return keys, of_keys, of_weights
