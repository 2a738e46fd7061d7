"""DeepSeek-V4's attention: one key, which is the value too, of each token of a window and each group before.

Queries come out of latents; answers go through matrices of groups of heads into latents again, and out.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.compressed_pool import CompressedPool
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import compressed
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.quantization import PLAIN, BlockFp8
from runtime.models.build import Build
from runtime.models.compressor import Compressor, GroupIndexer


class CompressedAttention(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        model, ranks, rank = build.model, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        config, own = model.layer_attention(layer_id), model.compressed
        assert own is not None and config.window is not None
        self.name, self.layer_id, self.config, self.eps = name, layer_id, config, model.rms_eps
        width, hidden = config.head_dim, slice(0, model.hidden_size)
        self.heads = shard(config.num_heads, ranks, rank, "the number of heads")
        groups = shard(own.output_groups, ranks, rank, "the number of groups of heads")
        self.groups, self.width = length(groups), width
        latent = slice(0, own.q_lora_rank)
        self.sizes = [own.q_lora_rank, width]
        first = [Part(f"{name}.q_a_proj", latent), Part(f"{name}.kv_proj", slice(0, width))]
        self.down = build.linear(first, hidden, is_one=True)
        self.q_norm = build.norm(f"{name}.q_a_norm", own.q_lora_rank)
        self.kv_norm = build.norm(f"{name}.kv_norm", width)
        queries = slice(self.heads.start * width, self.heads.stop * width)
        self.q_up = build.linear([Part(f"{name}.q_b_proj", queries)], latent, rows_over=ranks)
        rows = slice(groups.start * own.output_rank, groups.stop * own.output_rank)
        of_group = slice(0, config.num_heads * width // own.output_groups)
        matrices = [Part(f"{name}.o_a_proj", rows)]
        scheme = build.scheme_of(matrices) if _has_fp8_groups(build) else PLAIN
        self.out_a = build.linear(matrices, of_group, scheme=scheme, rows_over=ranks)
        last = [Part(f"{name}.{model.names.attention_out}", hidden)]
        self.out_b = build.linear(last, rows, columns_over=ranks)
        sinks = torch.empty(config.num_heads, dtype=torch.float32, device=build.device)
        self.sinks = nn.Parameter(sinks, requires_grad=False)  # those of all ranks
        kind = model.attention_kinds[layer_id]
        rate, chooses = own.rates.get(kind, 0), kind == "sparse"
        stem = f"{name}.compressor"
        self.compressor = Compressor(build, stem, width, rate, chooses) if rate else None
        self.indexer = GroupIndexer(build, layer_id, f"{stem}.indexer", rate) if chooses else None

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert isinstance(pool.cache, CompressedPool) and table is not None
        down, keys = self.down(x).split(self.sizes, dim=-1)
        latent = self.q_norm(down)
        q = self.q_up(latent).unflatten(-1, (-1, self.width))
        compressed.unit_norm_(q, self.eps)
        compressed.turn_(q, table, batch.positions)
        self.kv_norm.in_place(keys)
        compressed.turn_(keys.unsqueeze(1), table, batch.positions)
        groups = chosen = None
        if self.compressor is not None:
            groups = self.compressor(x, pool.cache.compressed(self.layer_id), batch, pool, table)
        if self.indexer is not None:
            chosen = self.indexer(x, latent, batch, pool, table)
        answer = compressed.attend(
            q,
            keys,
            pool.cache.keys(self.layer_id),
            groups,
            chosen,
            self.sinks[self.heads],
            batch,
            pool,
            self.compressor.rate if self.compressor else 0,
            self.config.window or 0,
            self.config.scale,
        )
        compressed.turn_(answer, table, batch.positions, back=True)
        return self.out_b(self._within_groups(answer))

    def _within_groups(self, answer: torch.Tensor) -> torch.Tensor:
        """[T, heads, width] -> [T, groups x rank], each group by a matrix of its own."""
        tensors, scheme = self.out_a.tensors, self.out_a.scheme
        block = list(scheme.block) if isinstance(scheme, BlockFp8) else []
        scale = tensors[scheme.scale] if isinstance(scheme, BlockFp8) else None
        return compressed.within_groups(answer, tensors["weight"], scale, block, self.groups)

    def pieces(self) -> Iterator[Piece]:
        parts = (self.down, self.q_norm, self.kv_norm, self.q_up, self.out_a, self.out_b)
        for part in (*parts, self.compressor, self.indexer):
            if part is not None:
                yield from part.pieces()
        yield Piece(self.sinks, (Source(f"{self.name}.sinks"),))


def _has_fp8_groups(build: Build) -> bool:
    """Whether the matrices of groups stay in fp8, as a checkpoint has them: where there are kernels for it
    and nobody asked otherwise. srt/arg_groups/serving_hook.py"""
    return build.runtime.sm_major == 10 and build.model.quantization_block == (128, 128)
