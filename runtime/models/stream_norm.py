"""A norm of each residual stream by itself, with weights of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.server.layer_config import GatedStreamsConfig


class StreamNorm(nn.Module):
    """[T, streams, H]. A checkpoint tells the weights less one."""

    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        streams = build.model.streams
        assert isinstance(streams, GatedStreamsConfig)
        self.name, self.eps, self.rank = name, build.model.rms_eps, streams.rank
        shape = (streams.count, build.model.hidden_size)
        made = torch.empty(shape, dtype=build.dtype, device=build.device)
        self.weight = nn.Parameter(made, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.float()
        rows = rows * torch.rsqrt(rows.square().mean(-1, keepdim=True) + self.eps)
        return (rows * self.weight.float()).to(x.dtype)

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self.weight, (Source(f"{self.name}.weight", view=self._shaped),))

    def _shaped(self, told: torch.Tensor) -> torch.Tensor:
        return told.view_as(self.weight) + 1
