"""Attention behind gates, whose values are a token's best of many: K2 Horizon's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.opaque import opaque_op
from runtime.layers.rope import rope_, rows_of
from runtime.models.build import Build
from runtime.moe.router import Router
from runtime.server.layer_config import AttentionConfig, MoEConfig

_ROWS = 1024  # of which every value is made at a time, on a GPU or a CPU
_STEEPNESS = math.log(2)  # of a softplus


class RoutedValueAttention(nn.Module):
    """Its result is a partial sum over the attention-TP group. Layers whose values are not `routed` have one
    matrix of them."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config = model.layer_attention(layer_id)
        self.rope, self.width, self.gate_by = config.rope, config.head_dim, config.value_gate_by
        q, kv = (
            _rows(count, ranks, rank, config.head_dim) for count in (config.num_heads, config.num_kv_heads)
        )
        hidden = slice(0, model.hidden_size)
        self.q, self.k, self.gate = (
            build.linear([Part(f"{name}.{one}_proj", rows)], hidden, rows_over=ranks)
            for one, rows in (("q", q), ("k", kv), ("gate", q))
        )
        self.v: Linear | RoutedValues
        if config.routed is None:
            self.v = build.linear([Part(f"{name}.v_proj", kv)], hidden, rows_over=ranks)
        else:
            self.v = RoutedValues(build, name, config, config.routed, kv)
        self.out = build.linear([Part(f"{name}.o_proj", hidden)], q, columns_over=ranks)
        self.layer = AttentionLayer(layer_id, config.scale)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        q, k, gate = self.q(x), self.k(x), self.gate(x)
        q, k, v = (one.unflatten(-1, (-1, self.width)) for one in (q, k, self.v(x)))
        assert self.rope is not None and table is not None
        rope_(q, k, table, rows_of(self.rope, batch.positions), self.rope.interleaved)
        answer = attend(q, k, v, self.layer, batch, pool).flatten(1)
        opened = F.silu(gate) if self.gate_by == "silu" else F.softplus(gate, beta=_STEEPNESS)
        return self.out(answer * opened)

    def pieces(self) -> Iterator[Piece]:
        for part in (self.q, self.k, self.gate, self.v, self.out):
            yield from part.pieces()


class RoutedValues(nn.Module):
    """A sum of silus, each weighted as its router says: a rank has its rows of every matrix."""

    def __init__(
        self, build: Build, name: str, config: AttentionConfig, routed: MoEConfig, rows: slice
    ) -> None:
        super().__init__()
        hidden = build.model.hidden_size
        self.name, self.rows = name, rows
        self.router = Router((f"{name}.v_router",), hidden, routed, build.dtype, build.device)
        shape = (routed.num_experts, length(rows), hidden)
        self.weight = nn.Parameter(torch.empty(shape, dtype=build.dtype, device=build.device), False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.router(x)
        made = F.silu(routed_rows(x, self.weight, chosen.ids))
        return (made * chosen.weights.to(made.dtype).unsqueeze(-1)).sum(dim=1)

    def pieces(self) -> Iterator[Piece]:
        yield from self.router.pieces()
        for number, one in enumerate(self.weight):
            yield Piece(one, (Source(f"{self.name}.v_experts.{number}.weight", (self.rows,)),))


def _rows(heads: int, ranks: int, rank: int, width: int) -> slice:
    own = shard(heads, ranks, rank, "the number of heads")
    return slice(own.start * width, own.stop * width)


@opaque_op("sgl_tune::routed_rows", mutates_args=())
def routed_rows(x: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """[T, K] by the K of [experts, N, K] that each token has chosen [T, chosen] -> [T, chosen, N]."""
    out = x.new_empty(*ids.shape, weight.shape[1])
    for rows, chosen, into in zip(x.split(_ROWS), ids.split(_ROWS), out.split(_ROWS), strict=True):
        every = torch.einsum("tk,enk->ten", rows, weight)
        into.copy_(every.gather(1, chosen.long()[..., None].expand(-1, -1, weight.shape[1])))
    return out


@routed_rows.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return x.new_empty(*ids.shape, weight.shape[1])
