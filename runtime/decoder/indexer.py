"""The indexer of sparse attention, the same on every rank: which earlier tokens a token may see."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from runtime.decoder.build import Build
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import select_tokens
from runtime.layers.linear import Linear, Part
from runtime.layers.norm import EPS
from runtime.layers.quantization import PLAIN
from runtime.layers.rope import rope_


class Indexer(nn.Module):
    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        mla = build.model.mla
        assert mla is not None and mla.indexer is not None
        self.config, self.layer_id = mla.indexer, layer_id
        heads, size = mla.indexer.num_heads, mla.indexer.head_dim
        hidden = build.model.hidden_size
        self.query = build.linear([Part(f"{name}.wq_b", heads * size)], mla.q_lora_rank)
        keys, weights = Part(f"{name}.wk", size), Part(f"{name}.weights_proj", heads)
        self.key: Linear | None = None
        if mla.indexer.interleaved:  # one product; fp8 keys of a checkpoint are unpacked
            self.rest = build.linear([keys, weights], hidden, scheme=PLAIN)
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
        k = F.layer_norm(k.float(), (size,), self.key_norm_weight, self.key_norm_bias, EPS).to(x.dtype)
        rope_(q, k.unsqueeze(1), table, batch.positions, self.config.interleaved)
        weights = weights.float() * (heads * size) ** -0.5
        return select_tokens(q, k, weights, self.config.top_k, self.layer_id, batch, pool)
