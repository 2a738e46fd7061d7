"""The indexer of sparse attention, the same on every rank: which earlier tokens a token may see."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.decoder.build import Build
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import select_tokens
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source
from runtime.layers.quantization import PLAIN, Plain
from runtime.layers.rope import rope_

_EPS = 1e-6  # of a key's norm


class Indexer(nn.Module):
    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        mla = build.model.mla
        assert mla is not None and mla.indexer is not None
        self.name, self.config, self.layer_id = name, mla.indexer, layer_id
        heads, size = mla.indexer.num_heads, mla.indexer.head_dim
        hidden = slice(0, build.model.hidden_size)
        self.query = build.linear([Part(f"{name}.wq_b", slice(0, heads * size))], slice(0, mla.q_lora_rank))
        keys, weights = Part(f"{name}.wk", slice(0, size)), Part(f"{name}.weights_proj", slice(0, heads))
        self.key: Linear | None = None
        if mla.indexer.interleaved:  # one product; fp8 keys of a checkpoint are unpacked
            plain = Plain(stored_block=build.model.quantized.block)
            self.rest = build.linear([keys, weights], hidden, scheme=plain)
        else:
            self.key = build.linear([keys], hidden)
            self.rest = build.linear([weights], hidden, scheme=PLAIN)
        self.key_norm_weight = build.vector(size, torch.float32)
        self.key_norm_bias = build.vector(size, torch.float32)

    def forward(
        self,
        x: torch.Tensor,
        compressed: torch.Tensor,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor,
    ) -> torch.Tensor | None:
        heads, size = self.config.num_heads, self.config.head_dim
        q = self.query(compressed).unflatten(-1, (heads, size))
        if self.key is None:
            k, weights = self.rest(x).split([size, heads], dim=-1)
        else:
            k, weights = self.key(x), self.rest(x)
        k = F.layer_norm(k.float(), (size,), self.key_norm_weight, self.key_norm_bias, _EPS).to(x.dtype)
        rope_(q, k.unsqueeze(1), table, batch.positions, self.config.interleaved)
        weights = weights.float() * (heads * size) ** -0.5
        return select_tokens(q, k, weights, self.config.top_k, self.layer_id, batch, pool)

    def pieces(self) -> Iterator[Piece]:
        for part in (self.query, self.key, self.rest):
            if part is not None:
                yield from part.pieces()
        yield Piece(self.key_norm_weight, (Source(f"{self.name}.k_norm.weight"),))
        yield Piece(self.key_norm_bias, (Source(f"{self.name}.k_norm.bias"),))
