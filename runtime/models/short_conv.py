"""A gated short convolution in place of attention, its channels split over the attention-TP group."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, shard
from runtime.layers.recurrence import Rows
from runtime.models.build import Build
from runtime.models.recurrent_parts import Convolution, out_of_channels
from runtime.server.recurrent import ShortConvConfig


class ShortConv(nn.Module):
    """Its result is a partial sum over the attention-TP group."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, ranks, rank = build.model.recurrent, build.comm.size("attn_tp"), build.comm.rank("attn_tp")
        assert isinstance(config, ShortConvConfig)
        self.layer_id, hidden = layer_id, slice(0, build.model.hidden_size)
        own = shard(config.channels, ranks, rank, "the number of convolved channels")
        thirds = [config.channels * third for third in range(3)]
        parts = [Part(f"{name}.in_proj", slice(at + own.start, at + own.stop)) for at in thirds]
        self.projection = build.linear(parts, hidden, bias=config.bias, rows_over=ranks)
        self.conv = Convolution(build, f"{name}.conv", [own], config.conv_kernel, config.bias, opens=False)
        self.out = out_of_channels(build, f"{name}.out_proj", own, config.bias)

    def forward(
        self, x: torch.Tensor, batch: ForwardBatch, pool: KVPool, table: torch.Tensor | None
    ) -> torch.Tensor:
        assert pool.states is not None
        before, after, own = self.projection(x).chunk(3, dim=-1)
        mixed = self.conv(before * own, pool.states.layer(self.layer_id).conv, Rows.of(batch))
        return self.out(after * mixed)

    def pieces(self) -> Iterator[Piece]:
        for part in (self.projection, self.conv, self.out):
            yield from part.pieces()
