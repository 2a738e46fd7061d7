"""The states of recurrent layers, one slot per request. Slot 0 is for padding rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from runtime.server.layer_config import StateShape
from runtime.server.sizes.state_sizes import StatePlan


@dataclass(frozen=True, slots=True, eq=False)
class LayerState:
    conv: torch.Tensor  # [slots, channels, steps]
    recurrent: torch.Tensor  # [slots, heads, values, keys]


class StatePool:
    """One buffer with the convolution inputs of all layers, and one with their recurrent states.

    With drafts there are two more, which hold the states after each drafted token of a verify.
    """

    def __init__(
        self,
        plan: StatePlan,
        layers: Sequence[int],
        shape: StateShape,
        conv_dtype: torch.dtype,
        recurrent_dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._places = {layer: place for place, layer in enumerate(layers)}
        rows = (len(layers), plan.slots + 1)
        self._conv = torch.zeros(*rows, *shape.conv, dtype=conv_dtype, device=device)
        self._recurrent = torch.zeros(*rows, *shape.recurrent, dtype=recurrent_dtype, device=device)
        if plan.drafts:
            rows, tokens = (len(layers), plan.drafts + 1), plan.draft_tokens
            self._drafted_inputs = self._conv.new_zeros(*rows, tokens, *shape.conv)
            self._drafted = self._recurrent.new_zeros(*rows, tokens, *shape.recurrent)

    def layer(self, layer_id: int) -> LayerState:
        place = self._places[layer_id]
        return LayerState(self._conv[place], self._recurrent[place])
