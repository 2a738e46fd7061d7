"""A dense MLP and experts of the same rows, each answer with a norm of its own, before the layer's."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece
from runtime.models.build import Build
from runtime.models.mlp import DenseLayer, MoELayer
from runtime.moe.backends import MoEBackend
from runtime.moe.dispatch import Dispatcher


class ExpertsBeside(nn.Module):
    """The MLP is given normed rows; the router those without, and experts by a norm that is theirs."""

    def __init__(self, build: Build, layer_id: int, dispatcher: Dispatcher, backend: MoEBackend) -> None:
        super().__init__()
        model, layer = build.model, build.model.layer_name(layer_id)
        self.dense = DenseLayer(build, f"{layer}.{model.names.mlp}", model.mlp_size(layer_id))
        self.routed = MoELayer(build, layer, dispatcher, backend)
        after = f"{layer}.post_feedforward_layernorm"
        self.dense_norm, self.routed_norm = (build.norm_of_rows(f"{after}_{one}") for one in (1, 2))

    def forward(self, normed: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        answer = self.dense_norm.in_place(self.dense(normed))
        return answer.add_(self.routed_norm.in_place(self.routed(rows)))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.dense, self.routed, self.dense_norm, self.routed_norm):
            yield from part.pieces()
