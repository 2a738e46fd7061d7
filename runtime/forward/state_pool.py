"""The states of recurrent layers: a slot a request, and slot 0 for rows that are nobody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from runtime.server.recurrent import StateShape


@dataclass(frozen=True, slots=True, eq=False)
class LayerState:
    conv: torch.Tensor  # [slots, channels, steps]
    recurrent: torch.Tensor  # [slots, heads, values, keys]


class StatePool:
    """One buffer of all layers' inputs, and one of what they remember."""

    def __init__(
        self,
        slots: int,
        layers: Sequence[int],
        shape: StateShape,
        conv_dtype: torch.dtype,
        recurrent_dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        rows = (len(layers), slots + 1)
        self._places = {layer: place for place, layer in enumerate(layers)}
        self._conv = torch.zeros(*rows, *shape.conv, dtype=conv_dtype, device=device)
        self._recurrent = torch.zeros(*rows, *shape.recurrent, dtype=recurrent_dtype, device=device)

    def layer(self, layer_id: int) -> LayerState:
        place = self._places[layer_id]
        return LayerState(self._conv[place], self._recurrent[place])
