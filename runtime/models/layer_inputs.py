"""What each layer is given of a token beside its rows: a row of a table, and a part of its embedding."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from runtime.layers.linear import Part
from runtime.layers.loading import Piece, Source
from runtime.models.build import Build
from runtime.models.gathered import Gathered
from runtime.server.layer_config import LayerInputsConfig

_TABLE, _PROJECTION = "model.embed_tokens_per_layer", "model.per_layer_model_projection"
_NORM = "model.per_layer_projection_norm"


class LayerInputs(nn.Module):
    """Of all layers at once, on every rank of the first stage; its projection may be gathered from all."""

    def __init__(self, build: Build, config: LayerInputsConfig) -> None:
        super().__init__()
        model, self.sizes = build.model, (build.model.num_layers, config.width)
        rows, self.scale = model.num_layers * config.width, model.hidden_size**-0.5
        table = torch.empty(config.vocab_size, rows, dtype=build.dtype, device=build.device)
        self.weight = nn.Parameter(table, requires_grad=False)
        self.gathered = config.gathered
        self.projection = (
            Gathered(build, _PROJECTION, rows, model.hidden_size)
            if config.gathered
            else build.linear([Part(_PROJECTION, slice(0, rows))], slice(0, model.hidden_size))
        )
        self.norm = build.norm(_NORM, config.width)

    def forward(self, ids: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """[T] and [T, hidden] -> [T, layers, width]. A token that the table has not is its first."""
        known = ids.masked_fill(ids >= self.weight.shape[0], 0)
        looked_up = self._by_layer(F.embedding(known, self.weight) * self.sizes[1] ** 0.5)
        made = self.projection(embedded)
        made = made.mul_(self.scale) if self.gathered else made * self.scale
        made = self.norm(self._by_layer(made))
        return (made + looked_up) * 0.5**0.5

    def _by_layer(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.unflatten(-1, self.sizes)

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self.weight, (Source(f"{_TABLE}.weight"),))
        yield from self.projection.pieces()
        yield from self.norm.pieces()


class LayerInput(nn.Module):
    """... and in one layer, behind its MLP."""

    def __init__(self, build: Build, layer: str, width: int) -> None:
        super().__init__()
        hidden, inputs = slice(0, build.model.hidden_size), slice(0, width)
        self.gate = build.linear([Part(f"{layer}.per_layer_input_gate", inputs)], hidden)
        self.projection = build.linear([Part(f"{layer}.per_layer_projection", hidden)], inputs)
        self.norm = build.norm_of_rows(f"{layer}.post_per_layer_input_norm")

    def forward(self, rows: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        gates = F.gelu(self.gate(rows), approximate="tanh")
        return self.norm.in_place(self.projection(gates.mul_(given)))

    def pieces(self) -> Iterator[Piece]:
        for part in (self.gate, self.projection, self.norm):
            yield from part.pieces()
