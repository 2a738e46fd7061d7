"""N-grams of a layer: rows of a table that hashes of tokens choose, added to every residual stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn

from runtime.forward.batch import ForwardBatch
from runtime.forward.kv_pool import KVPool
from runtime.layers.embedding import padded_vocab
from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source, length, shard
from runtime.layers.ngrams import hashes, spaced_convolution
from runtime.layers.recurrence import Rows
from runtime.models.build import Build
from runtime.models.stream_norm import StreamNorm
from runtime.server.errors import Unsupported


class NgramTable(nn.Module):
    """Split by rows. A server keeps it in the host's memory, unless it is told otherwise."""

    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, self.comm = build.model.ngrams, build.comm
        assert config is not None
        self.name, self.config, self.group = name, config, "attn_tp"
        sizes = config.sizes(layer_id)
        starts = [0, *accumulate(sizes[:-1])]
        self.count = config.rows(layer_id)
        for own, told in (("factors", config.factors(layer_id)), ("sizes", sizes), ("starts", starts)):
            self.register_buffer(own, torch.tensor(told, dtype=torch.int64, device=build.device))
        ranks, rank = build.comm.size(self.group), build.comm.rank(self.group)
        self.rows = shard(padded_vocab(self.count), ranks, rank, "the table of n-grams")
        if build.device.type == "cuda":
            raise Unsupported("this runtime does not read n-grams of the host's memory on a GPU")
        self.weight: nn.Parameter | None = None
        if build.device.type == "cpu":
            made = torch.zeros(length(self.rows), config.row, dtype=build.dtype)
            self.weight = nn.Parameter(made, requires_grad=False)

    def forward(self, windows: torch.Tensor) -> torch.Tensor:
        """[T, n] -> [T, width]"""
        ids = hashes(windows, *map(self.get_buffer, ("factors", "sizes", "starts")))
        if self.weight is None:  # nothing is computed
            return torch.empty(len(ids), self.config.width, device=ids.device)
        elsewhere = (ids < self.rows.start) | (ids >= self.rows.stop)
        local = (ids - self.rows.start).masked_fill(elsewhere, 0)
        found = F.embedding(local, self.weight).masked_fill(elsewhere.unsqueeze(-1), 0)
        return self.comm.all_reduce(found.flatten(1), self.group)

    def pieces(self) -> Iterator[Piece]:
        """A checkpoint has it in parts, all but the last of as many rows; or whole."""
        if self.weight is None:
            return
        each = -(-self.count // self.config.parts)
        for part, start in enumerate(range(0, self.count, each)):
            first, last = max(start, self.rows.start), min(start + each, self.count, self.rows.stop)
            if first < last:
                target = self.weight[first - self.rows.start : last - self.rows.start]
                name = f"{self.name}.ngram_embedding"
                own = Source(f"{name}.shard_{part}.weight", (slice(first - start, last - start),))
                yield Piece(target, (own, Source(f"{name}.weight", (slice(first, last),))))


class Ngrams(nn.Module):
    def __init__(self, build: Build, layer_id: int, name: str) -> None:
        super().__init__()
        config, streams, width = build.model.ngrams, build.model.streams, build.model.hidden_size
        assert config is not None and streams is not None
        self.name, self.config, self.layer_id = name, config, layer_id
        channels, read = slice(0, streams.count * width), slice(0, config.width)
        self.table = NgramTable(build, layer_id, f"{name}.ple_embedding")
        self.key = build.linear([Part(f"{name}.key_proj", channels)], read)
        self.value = build.linear([Part(f"{name}.value_proj", slice(0, width))], read)
        self.key_norm, self.query_norm, self.conv_norm = (
            StreamNorm(build, f"{name}.norm_{one}") for one in ("key", "query", "conv")
        )
        taps = torch.empty(channels.stop, config.taps, dtype=build.dtype, device=build.device)
        self.taps = nn.Parameter(taps, requires_grad=False)

    def forward(
        self, streams: torch.Tensor, windows: torch.Tensor, batch: ForwardBatch, pool: KVPool
    ) -> torch.Tensor:
        assert pool.states is not None
        rows = self.table(windows)
        key, query = self.key_norm(self.key(rows).view_as(streams)), self.query_norm(streams)
        gate = (key * query).sum(-1, keepdim=True) * streams.shape[-1] ** -0.5
        gate = gate.abs().clamp_min(1e-6).sqrt() * gate.sign()
        value = gate.sigmoid() * self.value(rows)[:, None]
        seen, space = pool.states.seen(self.layer_id), self.config.longest
        normed = self.conv_norm(value).flatten(1)
        local = F.silu(spaced_convolution(normed, self.taps, seen, Rows.of(batch), space))
        return streams + (value + local.view_as(value))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.table, self.key, self.value, self.key_norm, self.query_norm, self.conv_norm):
            yield from part.pieces()
        yield Piece(self.taps, (Source(f"{self.name}.conv1d.weight", view=lambda told: told.squeeze(1)),))
