"""An indexer whose keys are means of a few tokens': Qwen4's. Whole on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.gqa_pool import PooledKeysPool
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import ops
from runtime.layers.attention.key_pools import chosen_means
from runtime.layers.linear import Part
from runtime.layers.loading import Piece
from runtime.layers.rope import rope_
from runtime.models.build import Build
from runtime.server.layer_config import IndexerConfig


class KeyPools(nn.Module):
    def __init__(self, build: Build, layer_id: int, name: str, config: IndexerConfig) -> None:
        super().__init__()
        self.config, self.layer_id = config, layer_id
        rows = slice(0, (config.num_heads + 1) * config.head_dim)
        self.project = build.linear([Part(f"{name}.index_qk_proj", rows)], slice(0, build.model.hidden_size))
        self.q_norm, self.k_norm = (build.norm(f"{name}.{one}_layernorm", config.head_dim) for one in "qk")

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor, interleaved: bool
    ) -> torch.Tensor | None:
        """[T, top_k + pool - 1] int32 tokens, -1 for none; `None` when no request is long enough for a
        choice."""
        assert isinstance(pool.cache, PooledKeysPool)
        config = self.config
        each = self.project(x).unflatten(-1, (config.num_heads + 1, config.head_dim))
        q, k = each[:, :-1].contiguous(), each[:, -1].contiguous()
        if pool.cache.keeps_all:
            ops.store_rows(pool.cache.index_keys(self.layer_id), batch.out_cache_loc, k)
        if batch.max_seq_len < config.top_k + config.pool:
            return None
        self.q_norm.in_place(q)
        rope_(q, q[:, :0], table, batch.positions, interleaved)
        return chosen_means(
            q,
            pool.cache.index_keys(self.layer_id) if pool.cache.keeps_all else k,
            self.k_norm.weight,
            self.k_norm.eps,
            table,
            interleaved,
            pool.requests.table,
            batch.req_pool_indices,
            batch.seq_lens,
            batch.query_starts,
            batch.max_query_len,
            config.top_k,
            config.pool,
        )

    def pieces(self) -> Iterator[Piece]:
        for part in (self.project, self.q_norm, self.k_norm):
            yield from part.pieces()
