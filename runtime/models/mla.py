"""Multi-head latent attention, absorbed: queries meet the cached latents, values are unfolded after.

`kv_b_proj` stays beside the two matrices made from it, as on a server.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend_latent
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.quantization import PLAIN
from runtime.layers.rope import rope_, rows_of
from runtime.layers.scaled_linear import fp8_head_products
from runtime.models.build import Build
from runtime.models.growth import grow_
from runtime.models.indexer import Indexer
from runtime.models.pooled_indexer import PooledIndexer
from runtime.server.formats.kinds import is_absorbed_in_fp8
from runtime.server.layer_config import AttentionConfig

_EIGHT = 8  # rows: a gate in the first matrix is filled up to so many


class LatentAttention(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    keys_in: torch.Tensor
    values_out: torch.Tensor
    absorbed_scale: torch.Tensor | None = None

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config, self.mla = model.layer_attention(layer_id), model.layer_mla(layer_id)
        self.rope, self.build = config.rope, build
        self.growth = config.growth
        heads = shard(config.num_heads, ranks, rank, "the number of heads")
        self.heads = length(heads)
        hidden, latent = slice(0, model.hidden_size), slice(0, self.mla.cache_dim)
        read = slice(0, config.inputs * model.hidden_size)
        query = _rows(heads, self.mla.qk_head_dim)
        lora = self.mla.q_lora_rank
        first = Part(f"{name}.q_a_proj", slice(0, lora)) if lora else Part(f"{name}.q_proj", query, False)
        self.sizes = [length(first.rows), self.mla.cache_dim]
        downs = [first, Part(f"{name}.kv_a_proj_with_mqa", latent)]
        gate, spare = _gate(build, config, heads, self.mla.v_head_dim, name), 0
        if gate is not None and config.gates_first:
            spare = -length(gate.rows) % _EIGHT
            self.sizes += [length(gate.rows), spare]
            downs.append(gate)
        self.own_latent: Linear | None = None
        apart = not lora or model.drops_absorbed
        if apart and build.is_quantized:  # as a server has them
            self.own_latent = build.linear([downs.pop()], read, bias=config.bias)
        self.down = build.linear(downs, read, bias=config.bias, is_one=True, spare=spare)
        eps = self.mla.norm_eps
        self.q_norm = build.gated_norm(f"{name}.q_a_layernorm", lora, eps) if lora else None
        queries = [Part(f"{name}.q_b_proj", query)]
        self.q_up = build.linear(queries, slice(0, lora), rows_over=ranks) if lora else None
        self.kv_norm = build.gated_norm(f"{name}.kv_a_layernorm", self.mla.kv_lora_rank, eps)
        kv = _rows(heads, self.mla.qk_nope_head_dim + self.mla.v_head_dim)
        self.kv_up = build.linear(
            [Part(f"{name}.kv_b_proj", kv)], slice(0, self.mla.kv_lora_rank), rows_over=ranks
        )
        self.out = build.linear(
            [Part(f"{name}.{model.names.attention_out}", hidden, within=(f"{name}.o_proj", hidden))],
            _rows(heads, self.mla.v_head_dim),
            bias=config.output_bias,
            adds_bias=rank == 0,
            columns_over=ranks,
        )
        self.head_gate: Linear | None = None
        self.value_gate: Linear | None = None
        if gate is not None and not config.gates_first:
            if config.head_gate:
                self.head_gate = build.linear([gate], hidden, scheme=PLAIN, rows_over=ranks)
            else:
                self.value_gate = build.linear([gate], hidden, rows_over=ranks)
        turned = self.mla.qk_rope_head_dim if config.norms_rest else 0
        self.turned_norm = build.norm(f"{name}.k_rope_only_layernorm", turned, eps) if turned else None
        self.sinks = None
        if config.sinks:
            sinks = torch.empty(self.heads, dtype=torch.float32, device=build.device)
            self.sinks = nn.Parameter(sinks, requires_grad=False)
        self.name, self.own_heads = name, heads
        self.indexer = _indexer(build, layer_id, f"{name}.indexer")
        self.layer = AttentionLayer(layer_id, config.scale, config.window, self.sinks)

    def finalize(self) -> None:
        """After loading: `keys_in` folds a query into the latent space, `values_out` unfolds an answer."""
        for norm, scale in ((self.q_norm, self.mla.query_scale), (self.kv_norm, self.mla.latent_scale)):
            if norm is not None and scale != 1:
                norm.scale_by(scale)
        weight = self.kv_up.dequantized().to(self.build.dtype)
        if is_absorbed_in_fp8(self.build.kind_of([f"{self.name}.kv_b_proj"])):
            weight, self.absorbed_scale = _by_one_scale(weight)
        per_head = weight.unflatten(0, (self.heads, -1))
        keys, values = per_head.split([self.mla.qk_nope_head_dim, self.mla.v_head_dim], dim=1)
        self.register_buffer("keys_in", keys.transpose(1, 2).contiguous().transpose(1, 2))  # columns apart
        self.register_buffer("values_out", values.clone(memory_format=torch.contiguous_format))
        if self.build.model.drops_absorbed:
            del self.kv_up

    def _product(self, rows: torch.Tensor, absorbed: torch.Tensor) -> torch.Tensor:
        """[heads, T, k] and [heads, k, n]."""
        if self.absorbed_scale is None:
            return torch.bmm(rows, absorbed)
        tuned = self.build.runtime.release.absorbs_by_flashinfer
        return fp8_head_products(rows, absorbed, self.absorbed_scale, tuned)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        return self.attend(x, batch, pool, table)[0]

    def attend(
        self,
        x: torch.Tensor,
        batch: ForwardBatch,
        pool: KVPool,
        table: torch.Tensor | None,
        selected: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """With what it saw: where it shares a choice, what was `selected` before."""
        gate = None if self.value_gate is None else self.value_gate(x)
        nope, rank = self.mla.qk_nope_head_dim, self.mla.kv_lora_rank
        first: list[torch.Tensor] = []
        if self.own_latent is None:
            down, latent, *first = self.down(x).split(self.sizes, dim=-1)
        else:
            down, latent = self.down(x), self.own_latent(x)
        compressed = self.q_norm(down) if self.q_norm else down
        q = self.q_up(compressed) if self.q_up else compressed
        q = q.unflatten(-1, (self.heads, -1))
        self.kv_norm.in_place(latent[:, :rank])
        if self.turned_norm is not None:
            self.turned_norm.in_place(latent[:, rank:])
        if self.rope is not None and table is not None:
            places = rows_of(self.rope, batch.positions)
            rope_(q[..., nope:], latent[:, None, rank:], table, places, self.rope.interleaved)
        if self.growth is not None:
            grow_(q, self.growth, batch.positions)
        if self.indexer is not None:
            selected = self.indexer(x, compressed, batch, pool, table)
        absorbed = self._product(q[..., :nope].transpose(0, 1), self.keys_in).transpose(0, 1)
        query = torch.cat((absorbed, q[..., nope:]), dim=-1)
        answer = attend_latent(query, latent, rank, self.layer, batch, pool, selected)
        values = self._product(answer.transpose(0, 1), self.values_out.transpose(1, 2))
        answer = values.transpose(0, 1)
        if self.head_gate is not None:
            answer = answer * self.head_gate(x).unsqueeze(-1).sigmoid()
        elif first:
            answer = answer * first[0].sigmoid().unflatten(-1, (self.heads, -1))
        rows = answer.flatten(1)
        return self.out(rows if gate is None else rows * gate.sigmoid_()), selected

    def pieces(self) -> Iterator[Piece]:
        parts = (self.down, self.own_latent, self.q_norm, self.q_up, self.kv_norm, self.kv_up, self.out)
        for part in (*parts, self.turned_norm, self.head_gate, self.value_gate, self.indexer):
            if part is not None:
                yield from part.pieces()
        if self.sinks is not None:
            names = (f"{self.name}.{one}" for one in ("sinks", "learnable_sink_param"))
            yield Piece(self.sinks, tuple(Source(name, (self.own_heads,)) for name in names))


def _indexer(build: Build, layer_id: int, name: str) -> Indexer | PooledIndexer | None:
    mla = build.model.layer_mla(layer_id)
    if mla.indexer is None or build.model.shares_choice(layer_id):
        return None
    return (Indexer if mla.indexer.pool == 1 else PooledIndexer)(build, layer_id, name)


def _gate(build: Build, config: AttentionConfig, heads: slice, width: int, name: str) -> Part | None:
    """One a head, or one a value."""
    called = build.model.names.latent_gate if config.value_gate else "g_proj"
    rows = _rows(heads, width) if config.value_gate else heads
    if not (config.value_gate or config.head_gate):
        return None
    within = (f"{name}.gate_proj", rows) if config.value_gate else None
    return Part(f"{name}.{called}", rows, within=within)


def _by_one_scale(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = weight.abs().amax().float().reshape(1) / torch.finfo(torch.float8_e4m3fn).max
    return (weight / scale.to(weight.dtype)).to(torch.float8_e4m3fn), scale


def _rows(heads: slice, head_dim: int) -> slice:
    return slice(heads.start * head_dim, heads.stop * head_dim)
