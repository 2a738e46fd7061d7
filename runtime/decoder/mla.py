"""Multi-head latent attention, absorbed: queries meet cached latents, and values are expanded after.

`kv_b_proj` stays in memory beside the two matrices made from it, as on a server.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runtime.decoder.build import Build
from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend_latent, select_tokens
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import length, rows_of_heads, shard
from runtime.layers.quantization import PLAIN
from runtime.layers.rope import rope_
from runtime.layers.scaled_linear import fp8_head_products

_EPS = 1e-6  # whatever the norms of rows have


class LatentAttention(nn.Module):
    """Latent attention. Its output is a partial sum over the attention-TP group."""

    keys_in: Tensor
    values_out: Tensor
    absorbed_scale: Tensor | None = None

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert model.mla is not None
        config, mla = model.layer_attention(layer_id), model.mla
        self.rope, self.mla, self.build, self.name = config.rope, mla, build, name
        heads = shard(config.num_heads, ranks, rank, "the number of heads")
        self.heads, hidden = length(heads), slice(0, model.hidden_size)
        query = rows_of_heads(heads, mla.qk_head_dim)
        downs = [Part(f"{name}.q_a_proj", slice(0, mla.q_lora_rank))]
        downs.append(Part(f"{name}.kv_a_proj_with_mqa", slice(0, mla.cache_dim)))
        self.sizes = [length(part.rows) for part in downs]
        self.down = build.linear(downs, hidden, kept_as=(sum(self.sizes),))
        self.q_norm = build.norm(f"{name}.q_a_layernorm", mla.q_lora_rank, _EPS)
        lora = slice(0, mla.q_lora_rank)
        self.q_up = build.linear([Part(f"{name}.q_b_proj", query)], lora, rows_over=ranks)
        self.kv_norm = build.norm(f"{name}.kv_a_layernorm", mla.kv_lora_rank, _EPS)
        kv = rows_of_heads(heads, mla.qk_nope_head_dim + mla.v_head_dim)
        latent = slice(0, mla.kv_lora_rank)
        self.kv_up = build.linear([Part(f"{name}.kv_b_proj", kv)], latent, rows_over=ranks)
        answers = rows_of_heads(heads, mla.v_head_dim)
        self.out = build.linear([Part(f"{name}.o_proj", hidden)], answers, columns_over=ranks)
        self.indexer = Indexer(build, layer_id, f"{name}.indexer") if mla.indexer else None
        self.layer = AttentionLayer(layer_id, config.scale)

    def finalize(self) -> None:
        """Make `keys_in`, which maps a query into the latent space, and `values_out`, which maps back."""
        weight = self.kv_up.dequantized().to(self.build.dtype)
        kind = self.build.kind_of([f"{self.name}.kv_b_proj"])
        if kind is not None and kind.name == "fp8" and (kind.per != "block" or kind.block != (128, 128)):
            scale = weight.abs().amax().float().reshape(1) / torch.finfo(torch.float8_e4m3fn).max
            self.absorbed_scale = scale
            weight = (weight / scale.to(weight.dtype)).to(torch.float8_e4m3fn)
        per_head = weight.unflatten(0, (self.heads, -1))
        keys, values = per_head.split([self.mla.qk_nope_head_dim, self.mla.v_head_dim], dim=1)
        self.register_buffer("keys_in", keys.transpose(1, 2).contiguous().transpose(1, 2))  # columns apart
        self.register_buffer("values_out", values.clone(memory_format=torch.contiguous_format))

    def _product(self, rows: Tensor, absorbed: Tensor) -> Tensor:
        """Multiply [T, heads, k] with [heads, k, n] into [T, heads, n]."""
        rows = rows.transpose(0, 1)
        if self.absorbed_scale is None:
            return torch.bmm(rows, absorbed).transpose(0, 1)
        return fp8_head_products(rows, absorbed, self.absorbed_scale).transpose(0, 1)

    def forward(self, x: Tensor, batch: ForwardBatch, pool: KVPool, table: Tensor | None) -> Tensor:
        assert self.rope is not None and table is not None
        nope, rank = self.mla.qk_nope_head_dim, self.mla.kv_lora_rank
        down, latent = self.down(x).split(self.sizes, dim=-1)
        compressed = self.q_norm(down)
        q = self.q_up(compressed).unflatten(-1, (self.heads, -1))
        self.kv_norm.in_place(latent[:, :rank])
        rope_(q[..., nope:], latent[:, None, rank:], table, batch.positions, self.rope.interleaved)
        selected = None
        if self.indexer is not None:
            selected = self.indexer(x, compressed, batch, pool, table)
        query = torch.cat((self._product(q[..., :nope], self.keys_in), q[..., nope:]), dim=-1)
        answer = attend_latent(query, latent, rank, self.layer, batch, pool, selected)
        return self.out(self._product(answer, self.values_out.transpose(1, 2)).flatten(1))


_INDEX_EPS = 1e-6  # of a key's norm


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
            self.rest = build.linear([keys, weights], hidden, scheme=PLAIN)
        else:
            self.key = build.linear([keys], hidden)
            self.rest = build.linear([weights], hidden, scheme=PLAIN)
        self.key_norm_weight = build.vector(size, torch.float32)
        self.key_norm_bias = build.vector(size, torch.float32)

    def forward(
        self, x: Tensor, compressed: Tensor, batch: ForwardBatch, pool: KVPool, table: Tensor
    ) -> Tensor | None:
        heads, size = self.config.num_heads, self.config.head_dim
        q = self.query(compressed).unflatten(-1, (heads, size))
        if self.key is None:
            k, weights = self.rest(x).split([size, heads], dim=-1)
        else:
            k, weights = self.key(x), self.rest(x)
        k = F.layer_norm(k.float(), (size,), self.key_norm_weight, self.key_norm_bias, _INDEX_EPS).to(x.dtype)
        rope_(q, k.unsqueeze(1), table, batch.positions, self.config.interleaved)
        weights = weights.float() * (heads * size) ** -0.5
        return select_tokens(q, k, weights, self.config.top_k, self.layer_id, batch, pool)
