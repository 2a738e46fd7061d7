"""Attention whose queries and keys are mixed with those of tokens before, whose values are half of those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.recurrence import Rows, convolve
from runtime.layers.rope import rope_, rows_of
from runtime.models.build import Build
from runtime.models.gqa import head_rows
from runtime.server.recurrent import TwiceConvolvedConfig

_LEAST = 1e-12


class ConvolvedAttention(nn.Module):
    """Zaya's: srt/models/zaya.py. Its result is a partial sum over the attention-TP group; each rank has the
    matrices of all values."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config, twice = model.layer_attention(layer_id), model.recurrent
        assert isinstance(twice, TwiceConvolvedConfig) and config.rope is not None
        self.layer_id, self.name, self.rope, self.twice = layer_id, f"{name}.qkv", config.rope, twice
        self.head_dim, self.all_kv = config.head_dim, config.num_kv_heads
        self.heads = shard(config.num_heads, ranks, rank, "the number of heads")
        self.kv_heads = shard(config.num_kv_heads, ranks, rank, "the number of KV heads")
        q, k = head_rows(self.heads, self.head_dim), head_rows(self.kv_heads, self.head_dim)
        hidden, half = slice(0, model.hidden_size), slice(0, config.num_kv_heads * self.head_dim // 2)
        names = ("linear_q", q, ranks), ("linear_k", k, ranks), ("val_proj1", half, 1), ("val_proj2", half, 1)
        self.linears = nn.ModuleList(
            build.linear([Part(f"{self.name}.{own}", rows)], hidden, bias=config.bias, rows_over=over)
            for own, rows, over in names
        )
        behind = config.num_heads * self.head_dim
        self.blocks = [q, slice(behind + k.start, behind + k.stop)]
        channels, (first, second) = length(q) + length(k), twice.kernels

        def made(*shape: int) -> nn.Parameter:
            one = torch.empty(shape, dtype=build.dtype, device=build.device)
            return nn.Parameter(one, requires_grad=False)

        self.each, self.each_bias = made(channels, 1, first), made(channels)
        self.heads_of, self.heads_bias = made(channels, self.head_dim, second), made(channels)
        self.temperature = made(length(self.kv_heads))
        self.out = build.linear(
            [Part(f"{name}.o_proj", hidden)],
            q,
            bias=config.output_bias,
            adds_bias=rank == 0,
            columns_over=ranks,
        )
        self.layer = AttentionLayer(layer_id, config.scale)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None and table is not None
        linear_q, linear_k, now, before = self.linears
        state, rows = pool.states.layer(self.layer_id), Rows.of(batch)
        asked, keys = linear_q(x), linear_k(x)
        mixed = self._mixed(torch.cat([asked, keys], dim=-1), state.conv, rows)
        values = torch.cat([now(x), before(_shifted(x, 1, state.row, rows, rows.keeps))], dim=-1)
        v = values.unflatten(-1, (self.all_kv, self.head_dim))[:, self.kv_heads].contiguous()
        q, k = (one.to(x.dtype) for one in self._with_means(mixed, asked, keys))
        rope_(q, k, table, rows_of(self.rope, batch.positions), self.rope.interleaved)
        return self.out(attend(q, k, v, self.layer, batch, pool).flatten(1))

    def _mixed(self, x: torch.Tensor, state: torch.Tensor, rows: Rows) -> torch.Tensor:
        """By each channel, then by each head: what stands before a request's first token is nothing."""
        first, second = self.twice.kernels
        seen = [x]
        for back in range(1, self.twice.steps + 1):
            is_last = back == self.twice.steps
            seen.append(_shifted(x, back, state, rows, rows.keeps and is_last))
        answer = self.heads_bias.unflatten(0, (-1, self.head_dim))[None]
        for back in range(second):
            tap = self.heads_of[..., second - 1 - back].unflatten(0, (-1, self.head_dim))
            inner = self.each_bias + sum(
                seen[back + more] * self.each[:, 0, first - 1 - more] for more in range(first)
            )
            answer = answer + torch.einsum("thi,hoi->tho", inner.unflatten(-1, (-1, self.head_dim)), tap)
        return answer

    def _with_means(
        self, mixed: torch.Tensor, asked: torch.Tensor, keys: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of a KV head and those that ask it, in float32; then all heads are made as long."""
        groups = asked.float().unflatten(-1, (length(self.kv_heads), -1, self.head_dim))
        own = keys.float().unflatten(-1, (-1, self.head_dim))
        q = mixed[:, : length(self.heads)].float() + ((groups + own[:, :, None]) * 0.5).flatten(1, 2)
        k = mixed[:, length(self.heads) :].float() + (groups.mean(2) + own) * 0.5
        return _long(q), _long(k) * self.temperature.float()[:, None]

    def pieces(self) -> Iterator[Piece]:
        for part in (*self.linears, self.out):
            yield from part.pieces()
        start = 0
        for block in self.blocks:
            local = slice(start, start + length(block))
            for place, (weight, bias) in enumerate(
                ((self.each, self.each_bias), (self.heads_of, self.heads_bias))
            ):
                stem = f"{self.name}.conv_qk.{place}"
                yield Piece(weight[local], (Source(f"{stem}.weight", (block,)),))
                yield Piece(bias[local], (Source(f"{stem}.bias", (block,)),))
            start = local.stop
        yield Piece(self.temperature, (Source(f"{self.name}.temp", (self.kv_heads,)),))


def _long(heads: torch.Tensor) -> torch.Tensor:
    """As the root of their width."""
    width = heads.shape[-1]
    return heads * (heads.square().sum(dim=-1, keepdim=True) + _LEAST).rsqrt() * width**0.5


def _shifted(x: torch.Tensor, back: int, state: torch.Tensor, rows: Rows, keeps: bool) -> torch.Tensor:
    """Of each token what so many before it had: a convolution by a one. `state` has those of the last batch,
    and of this one where it `keeps` them."""
    steps = state.shape[-1]
    weight = x.new_zeros(x.shape[-1], steps + 1)
    weight[:, steps - back] = 1
    return convolve(x, weight, None, state, replace(rows, keeps=keeps), opens=False)
