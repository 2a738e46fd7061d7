"""Several residual streams: what goes into a part of a layer, how its answer comes back, what the head sees.

The weights of all three follow from the streams themselves, normed as one row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import nn

from runtime.layers import stream_ops
from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.gated_streams import GatedStreams
from runtime.models.predictions import LastStreams, last_streams
from runtime.models.stream_way import Way
from runtime.server.layer_config import GatedStreamsConfig, StreamsConfig


class _Weighing(nn.Module):
    """fp32, whatever the model's dtype."""

    def __init__(self, build: Build, outputs: int, scales: int, names: tuple[str, str, str]) -> None:
        super().__init__()
        streams = build.model.streams
        assert isinstance(streams, StreamsConfig)
        self.config, self.norm_eps, self.names = streams, build.model.rms_eps, names
        width, device = streams.count * build.model.hidden_size, build.device
        shapes = ((outputs, width), (outputs,), (scales,))
        self.matrix, self.base, self.scale = (
            nn.Parameter(torch.empty(shape, dtype=torch.float32, device=device), False) for shape in shapes
        )

    def pieces(self) -> Iterator[Piece]:
        for tensor, name in zip((self.matrix, self.base, self.scale), self.names, strict=True):
            yield Piece(tensor, (Source(name), *map(Source, published(name))))


def published(name: str) -> tuple[str, ...]:
    """DeepSeek's `hc_attn_fn` of a layer is its `attn_hc.fn`, and so is Hunyuan's of two modules."""
    layer, part, tensor = name.rsplit(".", 2)
    if part == "hc_head":
        return (f"{layer}.{part}.hc_head_{tensor.removeprefix('hc_')}",)
    half = {"attn_hc": "attn", "ffn_hc": "mlp"}[part]
    return (f"{layer}.hc_{part.removesuffix('_hc')}_{tensor}", f"{layer}.hc_{half}_layer.hc_pre.hc_{tensor}")


class Streams(_Weighing):
    """Around attention, or around what follows it."""

    def __init__(self, build: Build, name: str) -> None:
        assert isinstance(build.model.streams, StreamsConfig)
        count, mixes = build.model.streams.count, build.model.streams.steps > 0
        parts, outputs = (3, (2 + count) * count) if mixes else (2, 2 * count)
        super().__init__(build, outputs, parts, (f"{name}.fn", f"{name}.base", f"{name}.scale"))

    def collapse(self, streams: torch.Tensor) -> tuple[torch.Tensor, Way]:
        """[T, streams, H] -> [T, H], and the way back."""
        config, weights = self.config, (self.matrix, self.base, self.scale)
        if not config.steps:
            row, post = stream_ops.collapse_apart(
                streams, *weights, config.magnitude, config.eps, self.norm_eps
            )
            return row, Way(post, None)
        row, post, mixed = stream_ops.collapse(streams, *weights, config.steps, config.eps, self.norm_eps)
        return row, Way(post, mixed)

    def spread(self, answer: torch.Tensor, streams: torch.Tensor, way: Way) -> torch.Tensor:
        if way.mixed is None:
            return stream_ops.spread_apart(answer, streams, way.post)
        return stream_ops.spread(answer, streams, way.post, way.mixed)


class StreamMean(nn.Module):
    """The mean of all streams, for the last norm."""

    def forward(self, streams: torch.Tensor) -> torch.Tensor:
        return streams.mean(dim=1)

    def pieces(self) -> Iterator[Piece]:
        return iter(())


def around(build: Build, layer: str, part: Literal["attn", "mlp"]) -> Streams | GatedStreams | None:
    """Attention, or what follows it."""
    if build.model.streams is None:
        return None
    if isinstance(build.model.streams, GatedStreamsConfig):
        return GatedStreams(build, f"{layer}.{part}_hyper_connection")
    return Streams(build, f"{layer}.{'ffn' if part == 'mlp' else part}_hc")


def stream_end(build: Build) -> StreamHead | StreamMean | GatedStreams | LastStreams:
    streams, last = build.model.streams, last_streams(build)
    if last is not None:
        return last
    if isinstance(streams, GatedStreamsConfig):
        return GatedStreams(build, "model.hyper_connection_mixer", is_last=True)
    assert streams is not None
    return StreamHead(build, "model.hc_head") if streams.weighs_last else StreamMean()


class StreamHead(_Weighing):
    """One row of all streams, for the last norm."""

    def __init__(self, build: Build, name: str) -> None:
        assert build.model.streams is not None
        names = (f"{name}.hc_fn", f"{name}.hc_base", f"{name}.hc_scale")
        super().__init__(build, build.model.streams.count, 1, names)

    def forward(self, streams: torch.Tensor) -> torch.Tensor:
        return stream_ops.gathered(
            streams, self.matrix, self.base, self.scale, self.config.eps, self.norm_eps
        )
