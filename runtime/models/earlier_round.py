"""What a layer of a later round sees of the first one, and how much of it each head takes."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.attention import AttentionLayer, attend
from runtime.layers.linear import Linear, Part
from runtime.layers.loading import Piece, shard
from runtime.models.build import Build


class EarlierRound(nn.Module):
    """Of a layer whose keys of the first round are those of layer `first`. Later rounds share its gates."""

    def __init__(self, build: Build, first: int, gates: Linear | None = None) -> None:
        super().__init__()
        config = build.model.layer_attention(first)
        self.layer = AttentionLayer(first, config.scale)
        self.gates = _gates(build, first) if gates is None else gates

    def forward(self, q: torch.Tensor, own: torch.Tensor, batch: ForwardBatch, pool: KVPool) -> torch.Tensor:
        """q [T, heads, D], and what its own round answers, as wide."""
        seen, share = attend(q, None, None, self.layer, batch, pool), self._share(q)
        return seen * share + own * (1 - share)

    def _share(self, q: torch.Tensor) -> torch.Tensor:
        """All gates of the rank see the queries of every head, as in SGLang, and one of them counts."""
        tokens, heads, width = q.shape
        found = self.gates(q.transpose(0, 1).reshape(-1, width)).view(heads, tokens, heads)
        own = found.diagonal(dim1=0, dim2=2)
        return own.sigmoid()[..., None].expand(-1, -1, width).reshape(q.shape)

    def pieces(self) -> Iterator[Piece]:
        yield from self.gates.pieces()


def _gates(build: Build, first: int) -> Linear:
    config, ranks = build.model.layer_attention(first), build.comm.size("attn_tp")
    heads = shard(config.num_heads, ranks, build.comm.rank("attn_tp"), "the number of heads")
    parts = [Part(f"model.gate_projections.{first}", heads)]
    return build.linear(parts, slice(0, config.head_dim), bias=True, rows_over=ranks)
