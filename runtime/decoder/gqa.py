"""Grouped-query attention, its heads split over the attention-TP group."""

from __future__ import annotations

import torch
from torch import nn

from runtime.decoder.build import Build
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Part
from runtime.layers.norm import EPS, RMSNorm
from runtime.layers.rope import rope_
from runtime.server.layer_config import AttentionConfig, share
from runtime.server.sizes.sizing import kv_heads_per_rank


class GroupedQueryAttention(nn.Module):
    """Grouped-query attention. Its output is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks = build.model, build.comm.size("attn_tp")
        config = model.layer_attention(layer_id)
        self.rope, self.head_dim = config.rope, config.head_dim
        self.has_gate = config.output_gate
        heads = share(config.num_heads, ranks, "the number of heads")
        q = heads * config.head_dim
        kv = kv_heads_per_rank(config, build.comm.layout.parallel) * config.head_dim
        asked = q * (2 if self.has_gate else 1)
        self.sizes = [asked, kv, kv]
        parts = [Part(f"{name}.{one}_proj", rows) for one, rows in (("q", asked), ("k", kv), ("v", kv))]
        hidden = model.hidden_size
        self.qkv = build.linear(parts, hidden, bias=config.bias, rows_over=ranks)
        back = [Part(f"{name}.o_proj", hidden)]
        self.out = build.linear(back, q, bias=config.output_bias, columns_over=ranks)
        self.norms = _query_key_norms(build, config, q, kv)
        self.sinks: nn.Parameter | None = None
        if config.sinks:
            is_wide = build.runtime.kernels.attention == "trtllm_mha"  # whose kernels need them so
            self.sinks = build.vector(heads, torch.float32 if is_wide else build.dtype)
        self.layer = AttentionLayer(layer_id, config.head_dim**-0.5, config.window, self.sinks)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (-1, self.head_dim)) for one in self.qkv(x).split(self.sizes, -1))
        gate = None
        if self.has_gate:  # each head's query, then its gate
            q, gate = (part.contiguous() for part in q.unflatten(1, (-1, 2)).unbind(2))
        if self.norms is not None:
            self.norms(q, k)
        if self.rope is not None and table is not None:
            rope_(q, k, table, batch.positions, self.rope.interleaved)
        answer = attend(q, k, v, self.layer, batch, pool)
        if gate is not None:
            answer = answer * gate.sigmoid()
        return self.out(answer.flatten(1))


class HeadNorms(nn.Module):
    """Norms each head inside a fused projection, in place."""

    def __init__(self, q_norm: RMSNorm, k_norm: RMSNorm) -> None:
        super().__init__()
        self.q_norm, self.k_norm = q_norm, k_norm

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        self.q_norm.in_place(q)
        self.k_norm.in_place(k)


class WholeNorms(HeadNorms):
    """Norms all heads as one: ranks add up their squares. A KV head on several ranks counts for each."""

    def __init__(self, q_norm: RMSNorm, k_norm: RMSNorm, build: Build) -> None:
        super().__init__(q_norm, k_norm)
        self.comm = build.comm

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> None:
        squares = torch.stack((_squares(q), _squares(k)))
        self.comm.all_reduce(squares, "attn_tp")
        for x, norm, sums in zip((q, k), (self.q_norm, self.k_norm), squares, strict=True):
            width = norm.weight.numel() * self.comm.size("attn_tp")
            x.mul_(torch.rsqrt(sums / width + EPS)[:, None, None]).mul_(norm.weight.view(x.shape[1:]))


def _query_key_norms(build: Build, config: AttentionConfig, q: int, kv: int) -> HeadNorms | None:
    """Return the norms of queries and keys, or None. `q` and `kv` are this rank's rows of the projections."""
    if config.qk_norm == "none":
        return None
    if config.qk_norm == "head":
        return HeadNorms(build.norm(config.head_dim), build.norm(config.head_dim))
    return WholeNorms(build.norm(q), build.norm(kv), build)


def _squares(x: torch.Tensor) -> torch.Tensor:
    """Return the sum of squares of each token, [T, heads, width] -> [T], in fp32."""
    return torch.linalg.vector_norm(x, dim=(1, 2), dtype=torch.float32).square()
