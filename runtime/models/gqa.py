"""Grouped-query attention, its heads split over the attention-TP group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import softplus

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.norm import rms_norm_, weighed_norm
from runtime.layers.quantization import PLAIN
from runtime.layers.rope import rope_, rows_of
from runtime.models.build import Build
from runtime.models.earlier_round import EarlierRound
from runtime.models.growth import grow_
from runtime.models.key_pools import KeyPools
from runtime.models.mixed_turns import MixedTurns
from runtime.models.query_key_norm import query_key_norms
from runtime.models.shared_query import SharedQuery
from runtime.models.side_by_side import SideBySide
from runtime.models.sink_keys import SinkKeys
from runtime.server.call_rules import wide_sinks
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, RopeConfig
from runtime.server.tensor_names import TensorNames


class GroupedQueryAttention(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    value_norm: torch.Tensor | None

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config = model.layer_attention(layer_id)
        self.name, self.rope = name, config.rope
        self.heads = shard(config.num_heads, ranks, rank, "the number of heads")
        self.kv_heads = kv_shard(config.num_kv_heads, ranks, rank)
        self.widths = (config.head_dim, config.head_dim, config.value_width)
        q, kv = head_rows(self.heads, config.head_dim), head_rows(self.kv_heads, config.head_dim)
        asked = head_rows(self.heads, config.head_dim * (2 if config.output_gate else 1))
        if config.query_rank is not None:
            asked = slice(0, config.query_rank)
        values = head_rows(self.kv_heads, config.value_width)
        self.sizes = [length(asked), length(kv), length(values)]
        self.has_gate, self.value_scale = config.output_gate, config.value_scale
        self.key_scale, self.clip = config.key_scale, config.clip
        self.has_keys = model.key_layer(layer_id) == layer_id
        self.turns_in_fp32, self.has_own_table = config.turns_in_fp32, model.by_transformers
        self.mixed: MixedTurns | None = None
        self.earlier: EarlierRound | None = None
        parts = parts_of_heads(name, model.names, config, asked, kv, values, self.has_keys)
        read = slice(0, config.inputs * model.hidden_size)
        over = ranks if config.query_rank is None else 1
        how: dict[str, Any] = {"bias": config.bias, "rows_over": over, "any_rows": config.any_rows}
        self.qkv: Linear | SideBySide
        if model.names.attends_apart:
            self.qkv = SideBySide(build.linear([part], read, **how) for part in parts)
        else:
            self.qkv = build.linear(parts, read, **how)
        self.shared: SharedQuery | None = None
        if config.query_rank is not None:
            self.shared = SharedQuery(build, name, config.query_rank, q)
        self.out = build.linear(
            [Part(f"{name}.{model.names.attention_out}", slice(0, model.hidden_size))],
            head_rows(self.heads, config.value_width),
            bias=config.output_bias,
            adds_bias=rank == 0,
            columns_over=ranks,
        )
        self.head_gate: Linear | None = None
        if config.head_gate:
            gates = [Part(f"{name}.g_proj", self.heads)]
            self.head_gate = build.linear(gates, slice(0, model.hidden_size), scheme=PLAIN, rows_over=ranks)
        if config.value_gate:
            gates = [Part(f"{name}.{model.names.value_gate}", q)]
            self.head_gate = build.linear(gates, slice(0, model.hidden_size), rows_over=ranks)
        self.gate_bias: nn.Parameter | None = None
        if config.gate_bias:
            biases = torch.empty(length(self.heads), dtype=build.dtype, device=build.device)
            self.gate_bias = nn.Parameter(biases, requires_grad=False)
        self.soft_gate: Linear | None = None
        if config.softplus_gate is not None:
            gates = [Part(f"{name}.g_proj", self.heads if config.softplus_gate == "head" else q)]
            self.soft_gate = build.linear(gates, slice(0, model.hidden_size), rows_over=ranks)
        self.norms = query_key_norms(build, name, config, q, kv, self.has_keys)
        self.eps = model.rms_eps
        ones = torch.ones(config.value_width, dtype=build.dtype, device=build.device)
        self.register_buffer("value_norm", ones if config.norms_values else None)
        self.sinks = None
        if config.sinks:
            kept = torch.float32 if wide_sinks(model, build.runtime) else build.dtype
            sinks = torch.empty(length(self.heads), dtype=kept, device=build.device)
            self.sinks = nn.Parameter(sinks, requires_grad=False)
        self.sink_keys = SinkKeys(build, name, self.kv_heads, config) if config.sink_keys else None
        self.idle_norms = _idle_norms(build, config.head_dim) if config.idle_norms else None
        self.indexer = None
        if config.pools is not None:
            self.indexer = KeyPools(build, layer_id, f"{name}.indexer", config.pools)
        self.answer_eps = self.eps if config.norms_answers else None
        self.norms_turned, self.growth = config.norms_turned, config.growth
        self.layer = AttentionLayer(
            model.key_layer(layer_id),
            config.scale,
            config.window,
            self.sinks,
            config.score_cap,
            config.chunk,
            config.score_growth,
            config.both_ways,
        )

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        asked = self.qkv(x)
        parts = (asked if self.clip is None else asked.clamp_(-self.clip, self.clip)).split(self.sizes, -1)
        if self.shared is not None:
            parts = (self.shared(parts[0]), *parts[1:])
        q, k, v = (one.unflatten(-1, (-1, width)) for one, width in zip(parts, self.widths, strict=True))
        if self.key_scale is not None:
            k = k * self.key_scale
        gate = None
        if self.has_gate:  # each head's query, then its gate
            q, gate = (part.contiguous() for part in q.unflatten(1, (-1, 2)).unbind(2))
        if self.norms is not None and not self.norms_turned:
            self.norms(q, k)
        if self.value_norm is not None and self.has_keys:
            rms_norm_(v, self.value_norm, self.eps)
        if self.mixed is not None:
            q, k = self.mixed(q, k, batch.positions)
        elif self.rope is not None and table is not None:
            q, k = self._turned(q, k, table, self._rows(self.rope, batch.positions))
        if self.norms is not None and self.norms_turned:
            self.norms(q, k)
        if self.growth is not None:
            grow_(q, self.growth, batch.positions)
        if self.head_gate is not None:
            gate = self.head_gate(x).unflatten(-1, (q.shape[1], -1))
        if self.gate_bias is not None and gate is not None:
            gate = gate + self.gate_bias[:, None]
        if self.value_scale != 1:
            v = v * self.value_scale
        own, chosen = self.has_keys, None
        if self.indexer is not None and self.rope is not None and table is not None:
            chosen = self.indexer(x, batch, pool, table, self.rope.interleaved)
        if chosen is not None:
            chosen = chosen[:, None].expand(-1, k.shape[1], -1)
        sinks = None if self.sink_keys is None else self.sink_keys(q)
        keys, values = (k, v) if own else (None, None)
        answer = attend(q, keys, values, self.layer, batch, pool, chosen, sinks=sinks)
        if self.earlier is not None:
            answer = self.earlier(q, answer, batch, pool)
        if self.answer_eps is not None:
            answer = weighed_norm(answer, None, self.answer_eps)
        if gate is not None:
            answer = answer * gate.sigmoid()
        if self.soft_gate is not None:
            gate = softplus(self.soft_gate(x).float()).to(answer.dtype)
            answer = answer * gate.unflatten(-1, (answer.shape[1], -1))
        return self.out(answer.flatten(1))

    def _rows(self, rope: RopeConfig, positions: torch.Tensor) -> torch.Tensor:
        """Of a table, which may be of this batch alone."""
        if self.has_own_table:
            return torch.arange(positions.shape[0], device=positions.device)
        return rows_of(rope, positions)

    def _turned(
        self, q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, rows: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.rope is not None
        dtype = q.dtype
        if self.turns_in_fp32:
            q, k = q.float(), k.float()
        rope_(q, k, table, rows, self.rope.interleaved)
        return (q.to(dtype), k.to(dtype)) if self.turns_in_fp32 else (q, k)

    def pieces(self) -> Iterator[Piece]:
        gates = (self.head_gate, self.soft_gate)
        for part in (self.qkv, self.shared, self.out, *gates, self.norms, self.indexer, self.sink_keys):
            if part is not None:
                yield from part.pieces()
        if self.gate_bias is not None:
            yield Piece(self.gate_bias, (Source(f"{self.name}.gate_bias", (self.heads,)),))
        if self.sinks is not None:
            names = (f"{self.name}.{one}" for one in ("sinks", "attention_sink_bias"))
            yield Piece(self.sinks, tuple(Source(name, (self.heads,)) for name in names))


def _idle_norms(build: Build, width: int) -> nn.ParameterList:
    one = torch.ones(width, dtype=build.dtype, device=build.device)
    return nn.ParameterList(nn.Parameter(one.clone(), requires_grad=False) for _ in "qk")


def kv_shard(kv_heads: int, ranks: int, rank: int) -> slice:
    """With more ranks than KV heads, neighbours hold the same head."""
    if kv_heads >= ranks:
        return shard(kv_heads, ranks, rank, "the number of KV heads")
    if ranks % kv_heads:
        raise ConfigError(f"{kv_heads} KV heads cannot be repeated evenly over {ranks} attention-TP ranks")
    head = rank // (ranks // kv_heads)
    return slice(head, head + 1)


def parts_of_heads(
    name: str,
    names: TensorNames,
    config: AttentionConfig,
    q: slice,
    kv: slice,
    values: slice,
    has_keys: bool = True,
) -> list[Part]:
    """Three matrices, or one of the three below each other: in every checkpoint, or in some."""
    keys = config.num_heads * config.head_dim * (2 if config.output_gate else 1)
    below = keys + config.num_kv_heads * config.head_dim
    whole = f"{name}.{names.packed_qkv or 'qkv_proj'}"
    places = (("q_proj", q, 0), ("k_proj", kv, keys), ("v_proj", values, below))
    if names.packs_groups:
        return [Part(whole, rows, taken=_of_groups(config, own[0])) for own, rows, _ in places]
    inside = [slice(start + rows.start, start + rows.stop) for _, rows, start in places]
    if names.packed_qkv is not None:
        return [Part(whole, rows) for rows in inside]
    stored = f"{name}.k_proj" if config.keys_are_values else None
    return [
        Part(
            f"{name}.{own}",
            rows,
            within=(whole, within),
            stored=stored if own == "v_proj" else None,
            idle=own != "q_proj" and not has_keys,
        )
        for (own, rows, _), within in zip(places, inside, strict=True)
    ]


def _of_groups(config: AttentionConfig, which: str) -> Callable[[torch.Tensor], torch.Tensor]:
    asking = config.num_heads // config.num_kv_heads
    place = {"q": slice(0, asking), "k": slice(asking, asking + 1), "v": slice(asking + 1, asking + 2)}[which]
    return lambda whole: whole.unflatten(0, (-1, asking + 2, config.head_dim))[:, place].flatten(0, 2)


def head_rows(heads: slice, head_dim: int) -> slice:
    return slice(heads.start * head_dim, heads.stop * head_dim)
