"""An indexer that chooses pools of tokens, each by one key of them all. Replicated on every rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention.pools import choose_pools
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source
from runtime.models.build import Build

_KEY_NORM_EPS = 1e-6


class PooledIndexer(nn.Module):
    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        mla, width = build.model.mla, build.model.hidden_size
        assert mla is not None and mla.indexer is not None and mla.q_lora_rank is not None
        self.name, self.config, self.layer_id = name, mla.indexer, layer_id
        heads, size = mla.indexer.num_heads, mla.indexer.head_dim
        self.query = build.linear([Part(f"{name}.wq_b", slice(0, heads * size))], slice(0, mla.q_lora_rank))
        self.key = build.linear([Part(f"{name}.wk", slice(0, size))], slice(0, width))
        shapes = (heads, width), (size,), (size,), (mla.indexer.pool, size)
        self.head_weights, self.norm_weight, self.norm_bias, self.places = (
            nn.Parameter(torch.empty(shape, dtype=torch.float32, device=build.device), requires_grad=False)
            for shape in shapes
        )
        gates = torch.empty(size, width, dtype=build.dtype, device=build.device)
        self.gates = nn.Parameter(gates, requires_grad=False)

    def forward(
        self,
        x: torch.Tensor,
        compressed: torch.Tensor,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor | None,
    ) -> torch.Tensor | None:
        heads, size = self.config.num_heads, self.config.head_dim
        q = self.query(compressed).unflatten(-1, (heads, size))
        k = F.layer_norm(self.key(x).float(), (size,), self.norm_weight, self.norm_bias, _KEY_NORM_EPS)
        kept = torch.cat((k.to(x.dtype), F.linear(x, self.gates)), dim=-1)
        weights = F.linear(x.float(), self.head_weights) * (heads * size) ** -0.5
        return choose_pools(q, kept, self.places, weights, self.config.top_k, self.layer_id, batch, pool)

    def pieces(self) -> Iterator[Piece]:
        yield from self.query.pieces()
        yield from self.key.pieces()
        for tensor, name in (
            (self.head_weights, "weights_proj.weight"),
            (self.norm_weight, "k_norm.weight"),
            (self.norm_bias, "k_norm.bias"),
            (self.places, "index_kpool_compress_ape"),
            (self.gates, "index_kpool_compress_gate"),
        ):
            yield Piece(tensor, (Source(f"{self.name}.{name}"),))
