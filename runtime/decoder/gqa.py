"""Grouped-query attention, its heads split over the attention-TP group."""

import torch
from torch import Tensor, nn

from runtime.decoder.build import Build
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Part
from runtime.layers.loading import length, rows_of_heads, shard
from runtime.layers.norm import RMSNorm
from runtime.layers.rope import rope_
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig


class GroupedQueryAttention(nn.Module):
    """Grouped-query attention. Its output is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config = model.layer_attention(layer_id)
        self.name, self.rope, self.head_dim = name, config.rope, config.head_dim
        self.has_gate = config.output_gate
        self.heads = shard(config.num_heads, ranks, rank, "the number of heads")
        q = rows_of_heads(self.heads, config.head_dim)
        kv = rows_of_heads(kv_shard(config.num_kv_heads, ranks, rank), config.head_dim)
        asked = rows_of_heads(self.heads, config.head_dim * (2 if self.has_gate else 1))
        self.sizes = [length(asked), length(kv), length(kv)]
        parts = [Part(f"{name}.{one}_proj", rows) for one, rows in (("q", asked), ("k", kv), ("v", kv))]
        hidden = slice(0, model.hidden_size)
        self.qkv = build.linear(parts, hidden, bias=config.bias, rows_over=ranks)
        self.out = build.linear(
            [Part(f"{name}.o_proj", hidden)],
            q,
            bias=config.output_bias,
            adds_bias=rank == 0,
            columns_over=ranks,
        )
        self.norms = _query_key_norms(build, name, config, q, kv)
        self.sinks: nn.Parameter | None = None
        if config.sinks:
            is_wide = build.runtime.kernels.attention == "trtllm_mha"  # whose kernels need them so
            self.sinks = build.vector(length(self.heads), torch.float32 if is_wide else build.dtype)
        self.layer = AttentionLayer(layer_id, config.scale, config.window, self.sinks)

    def forward(self, x: Tensor, batch: ForwardBatch, pool: KVPool, table: Tensor | None) -> Tensor:
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


def kv_shard(kv_heads: int, ranks: int, rank: int) -> slice:
    """Return the KV heads of a rank. With more ranks than heads, neighbours hold the same head."""
    if kv_heads >= ranks:
        return shard(kv_heads, ranks, rank, "the number of KV heads")
    if ranks % kv_heads:
        raise ConfigError(f"{kv_heads} KV heads cannot be repeated evenly over {ranks} attention-TP ranks")
    head = rank // (ranks // kv_heads)
    return slice(head, head + 1)


class HeadNorms(nn.Module):
    """Norms each head inside a fused projection, in place."""

    def __init__(self, q_norm: RMSNorm, k_norm: RMSNorm) -> None:
        super().__init__()
        self.q_norm, self.k_norm = q_norm, k_norm

    def forward(self, q: Tensor, k: Tensor) -> None:
        self.q_norm.in_place(q)
        self.k_norm.in_place(k)


class WholeNorms(HeadNorms):
    """Norms all heads as one: ranks add up their squares. A KV head on several ranks counts for each."""

    def __init__(self, q_norm: RMSNorm, k_norm: RMSNorm, build: Build) -> None:
        super().__init__(q_norm, k_norm)
        self.comm = build.comm

    def forward(self, q: Tensor, k: Tensor) -> None:
        squares = torch.stack((_squares(q), _squares(k)))
        self.comm.all_reduce(squares, "attn_tp")
        for x, norm, sums in zip((q, k), (self.q_norm, self.k_norm), squares, strict=True):
            width = norm.weight.numel() * self.comm.size("attn_tp")
            x.mul_(torch.rsqrt(sums / width + norm.eps)[:, None, None]).mul_(norm.weight.view(x.shape[1:]))


def _query_key_norms(
    build: Build, name: str, config: AttentionConfig, q: slice, kv: slice
) -> HeadNorms | None:
    """Return the norms of queries and keys, or None. `q` and `kv` are this rank's rows of the projections."""
    if config.qk_norm == "none":
        return None
    of_q, of_k = f"{name}.q_norm", f"{name}.k_norm"
    if config.qk_norm == "head":
        return HeadNorms(build.norm(of_q, config.head_dim), build.norm(of_k, config.head_dim))
    return WholeNorms(build.norm(of_q, length(q), rows=q), build.norm(of_k, length(kv), rows=kv), build)


def _squares(x: Tensor) -> Tensor:
    """Return the sum of squares of each token, [T, heads, width] -> [T], in fp32."""
    return torch.linalg.vector_norm(x, dim=(1, 2), dtype=torch.float32).square()
