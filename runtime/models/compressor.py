"""Groups of earlier tokens as one key each, and the indexer that says which of them a token sees.

Replicated on every rank. What a token gives to its group is kept until the group is whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.compressed_pool import CompressedPool, GroupBuffers
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import compressed
from runtime.layers.attention.base import highest
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source
from runtime.layers.norm import RMSNorm
from runtime.layers.quantization import PLAIN
from runtime.models.build import Build


class Compressor(nn.Module):
    """A group is a mean of its tokens' keys, weighed channel by channel; where groups `overlap`, of the
    tokens of the group before, too, whose part in it is another."""

    def __init__(self, build: Build, name: str, width: int, rate: int, overlaps: bool) -> None:
        super().__init__()
        self.name, self.rate, self.overlaps = name, rate, overlaps
        rows, hidden = slice(0, width * (1 + overlaps)), slice(0, build.model.hidden_size)
        parts = [Part(f"{name}.{one}_proj", rows) for one in ("kv", "gate")]
        self.both = build.linear(parts, hidden, scheme=PLAIN)
        shape = (rate, rows.stop)
        self.bias = nn.Parameter(torch.empty(shape, dtype=torch.float32, device=build.device), False)
        eps = build.model.rms_eps
        self.norm = RMSNorm(f"{name}.kv_norm", width, eps, torch.float32, build.device)

    def forward(
        self, x: torch.Tensor, kept: GroupBuffers, batch: ForwardBatch, pool: KVPool, table: torch.Tensor
    ) -> torch.Tensor:
        """The keys of whole groups, each where its last token is kept."""
        compressed.compress(
            self.both(x),
            kept.tokens,
            kept.groups,
            self.bias,
            self.norm.weight,
            self.norm.eps,
            table,
            batch,
            pool,
            self.rate,
            self.overlaps,
        )
        return kept.groups

    def pieces(self) -> Iterator[Piece]:
        yield from self.both.pieces()
        yield Piece(self.bias, (Source(f"{self.name}.position_bias"),))
        yield from self.norm.pieces()


class GroupIndexer(nn.Module):
    def __init__(self, build: Build, layer_id: int, name: str, rate: int) -> None:
        super().__init__()
        assert build.model.compressed is not None
        self.config, self.layer_id = build.model.compressed.indexer, layer_id
        heads, width = self.config.num_heads, self.config.head_dim
        queries = [Part(f"{name}.q_b_proj", slice(0, heads * width))]
        self.query = build.linear(queries, slice(0, build.model.compressed.q_lora_rank))
        weights = [Part(f"{name}.scorer.weights_proj", slice(0, heads))]
        self.weights = build.linear(weights, slice(0, build.model.hidden_size), scheme=PLAIN)
        self.compressor = Compressor(build, name, width, rate, overlaps=True)

    def forward(
        self, x: torch.Tensor, latent: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor
    ) -> torch.Tensor | None:
        """Numbers of groups, -1 for none: [T, top_k]; `None` where all are seen."""
        assert isinstance(pool.cache, CompressedPool)
        heads, width = self.config.num_heads, self.config.head_dim
        keys = self.compressor(x, pool.cache.indexed(self.layer_id), batch, pool, table)
        q = self.query(latent).unflatten(-1, (heads, width))
        compressed.turn_(q, table, batch.positions)
        return highest(
            q,
            keys,
            self.weights(x).float() * (heads * width) ** -0.5,
            self.config.top_k,
            batch,
            pool,
            self.compressor.rate,
        )

    def pieces(self) -> Iterator[Piece]:
        for part in (self.query, self.weights, self.compressor):
            yield from part.pieces()
