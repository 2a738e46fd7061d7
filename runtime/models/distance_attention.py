"""Attention whose keys and values are convolved, and whose scores are given something for each distance."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.recurrence import Rows
from runtime.models.build import Build
from runtime.models.gqa import head_rows, kv_shard
from runtime.models.growth import grow_
from runtime.models.query_key_norm import query_key_norms
from runtime.models.recurrent_parts import Convolution
from runtime.server.recurrent import AddedConvolutionsConfig


class DistanceAttention(nn.Module):
    """Inkling's: srt/models/inkling_common. Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config, kind = model.layer_attention(layer_id), model.attention_kinds[layer_id]
        added = model.recurrent
        assert isinstance(added, AddedConvolutionsConfig) and config.distance is not None
        self.layer_id, self.name, self.growth = layer_id, name, config.growth
        heads = shard(config.num_heads, ranks, rank, "the number of heads")
        kv_heads = kv_shard(config.num_kv_heads, ranks, rank)
        q, kv = head_rows(heads, config.head_dim), head_rows(kv_heads, config.head_dim)
        mixing = head_rows(heads, config.distance.profiles)
        self.widths = (*(config.head_dim,) * 3, config.distance.profiles)
        self.sizes = [length(q), length(kv), length(kv), length(mixing)]
        hidden, rows = slice(0, model.hidden_size), (q, kv, kv, mixing)
        named = zip(("wq_du", "wk_dv", "wv_dv", "wr_du"), rows, strict=True)
        parts = [Part(f"{name}.{own}", part) for own, part in named]
        self.projection = build.linear(parts, hidden, rows_over=ranks)
        out = [Part(f"{name}.{model.names.attention_out}", hidden)]
        self.out = build.linear(out, q, columns_over=ranks)
        norms = query_key_norms(build, name, config, q, kv, True)
        assert norms is not None
        self.norms = norms
        places = added.places(ranks)
        self.places = [places[f"{kind} {part}"] for part in ("keys", "values")]
        self.convolutions = nn.ModuleList(
            Convolution(build, f"{name}.{one}_sconv", [kv], added.conv_kernel, opens=False) for one in "kv"
        )
        profiles = torch.empty(
            config.distance.profiles, config.distance.extent, dtype=build.dtype, device=build.device
        )
        self.profiles = nn.Parameter(profiles, requires_grad=False)
        self.layer = AttentionLayer(layer_id, config.scale, config.window)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        asked, keys, values, mixing = self.projection(x).split(self.sizes, dim=-1)
        state, rows = pool.states.layer(self.layer_id).conv, Rows.of(batch)
        keys, values = (
            kept + convolution(kept, state[:, place], rows)
            for kept, convolution, place in zip((keys, values), self.convolutions, self.places, strict=True)
        )
        parts = zip((asked, keys, values, mixing), self.widths, strict=True)
        q, k, v, mixed = (one.unflatten(-1, (-1, width)) for one, width in parts)
        self.norms(q, k)
        if self.growth is not None:
            grow_(q, self.growth, batch.positions)
            grow_(mixed, self.growth, batch.positions)
        answer = attend(q, k, v, self.layer, batch, pool, by_distance=mixed @ self.profiles)
        return self.out(answer.flatten(1))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.projection, self.norms, *self.convolutions, self.out):
            yield from part.pieces()
        yield Piece(self.profiles, (Source(f"{self.name}.rel_logits_proj.proj"),))
