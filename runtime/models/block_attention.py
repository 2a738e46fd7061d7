"""Grouped-query attention to blocks of tokens that an indexer chooses for each KV head: MiniMax-M3's."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.attention.blocks import choose_blocks
from runtime.layers.linear import Linear, Part, join, joins
from runtime.layers.loading import Piece, length, shard
from runtime.layers.rope import rope_
from runtime.models.build import Build
from runtime.models.gqa import head_rows, kv_shard, parts_of_heads
from runtime.models.query_key_norm import HeadNorms, query_key_norms


class BlockAttention(nn.Module):
    """Its result is a partial sum over the attention-TP group. Each rank has the indexer's key whole."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config = model.layer_attention(layer_id)
        assert config.blocks is not None
        self.rope, self.blocks, self.width = config.rope, config.blocks, config.head_dim
        heads = shard(config.num_heads, ranks, rank, "the number of heads")
        kv_heads = kv_shard(config.num_kv_heads, ranks, rank)
        asking = head_rows(kv_shard(config.blocks.num_heads, ranks, rank), config.blocks.head_dim)
        q, kv = head_rows(heads, self.width), head_rows(kv_heads, self.width)
        hidden, key = slice(0, model.hidden_size), slice(0, config.blocks.head_dim)
        self.sizes = [length(q), length(kv), length(kv), length(asking), length(key)]
        self.qkv = build.linear(parts_of_heads(name, model.names, config, q, kv, kv), hidden, rows_over=ranks)
        self.out = build.linear([Part(f"{name}.{model.names.attention_out}", hidden)], q, columns_over=ranks)
        indexes = [Part(f"{name}.index_q_proj", asking), Part(f"{name}.index_k_proj", key)]
        self.index: Linear | None = build.linear(indexes, hidden, rows_over=ranks)
        self.norms = query_key_norms(build, name, config, q, kv)
        self.index_norms = HeadNorms(
            *(build.norm(f"{name}.index_{one}_norm", config.blocks.head_dim) for one in "qk")
        )
        self.layer = AttentionLayer(layer_id, config.scale)

    def join(self) -> None:
        """After loading, as a server does: both are one matrix, where it can multiply by that."""
        if self.index is not None and joins(self.qkv, self.index):
            join(self.qkv, self.index)
            self.index = None

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        both = self.qkv(x) if self.index is None else torch.cat((self.qkv(x), self.index(x)), dim=-1)
        widths = (*(self.width,) * 3, *(self.blocks.head_dim,) * 2)
        q, k, v, asking, key = (
            part.unflatten(-1, (-1, width))
            for part, width in zip(both.split(self.sizes, dim=-1), widths, strict=True)
        )
        if self.norms is not None:
            self.norms(q, k)
        self.index_norms(asking, key)
        if self.rope is not None and table is not None:
            rope_(q, k, table, batch.positions, self.rope.interleaved)
            rope_(asking, key, table, batch.positions, self.rope.interleaved)
        chosen = choose_blocks(asking, key.squeeze(1), self.blocks, self.layer.layer_id, batch, pool)
        answer = attend(q, k, v, self.layer, batch, pool, chosen, self.blocks.block_size)
        return self.out(answer.flatten(1))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.qkv, self.out, self.index, self.norms, self.index_norms):
            if part is not None:
                yield from part.pieces()
