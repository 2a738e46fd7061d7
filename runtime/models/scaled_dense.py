"""A dense MLP whose answer is multiplied by a number of its own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.mlp import DenseLayer
from runtime.server.layer_config import NO_CAPS, Caps


class ScaledDense(DenseLayer):
    """Inkling's: srt/models/inkling_common/dense_mlp.py."""

    def __init__(self, build: Build, name: str, intermediate: int, caps: Caps = NO_CAPS) -> None:
        super().__init__(build, name, intermediate, caps)
        self.name = name
        one = torch.empty(1, dtype=build.dtype, device=build.device)
        self.global_scale = nn.Parameter(one, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.global_scale

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        yield Piece(self.global_scale, (Source(f"{self.name}.global_scale"),))
