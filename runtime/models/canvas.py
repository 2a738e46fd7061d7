"""What a model that writes canvases has beside a decoder: what the last step found is told to the next one.

Nothing here runs it, as prompts have none: it is held, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.models.mlp import DenseLayer

_NAME = "model.decoder.self_conditioning"


class SelfConditioning(nn.Module):
    """An MLP as wide as a layer's behind a norm, and before one without weights."""

    def __init__(self, build: Build) -> None:
        super().__init__()
        model = build.model
        self.before = build.norm_of_rows(f"{_NAME}.pre_norm")
        self.mlp = DenseLayer(build, _NAME, model.intermediate_size)
        ones = torch.ones(model.hidden_size, dtype=build.dtype, device=build.device)
        self.register_buffer("after", ones)

    def pieces(self) -> Iterator[Piece]:
        yield from self.before.pieces()
        yield from self.mlp.pieces()
