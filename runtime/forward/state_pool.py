"""The states of recurrent layers: a slot a request, and slot 0 for rows that are nobody's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from runtime.server.ngrams import NgramConfig
from runtime.server.state_shape import StateShape
from runtime.server.state_sizes import StatePlan


@dataclass(frozen=True, slots=True, eq=False)
class LayerState:
    conv: torch.Tensor  # [slots, channels, steps]
    recurrent: torch.Tensor  # [slots, heads, values, keys]
    row: torch.Tensor  # [slots, width, 1]


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
        self._row = torch.zeros(*rows, shape.row, 1, dtype=conv_dtype, device=device)
        self._recurrent = torch.zeros(*rows, *shape.recurrent, dtype=recurrent_dtype, device=device)

    def add_drafts(self, plan: StatePlan) -> None:
        """What a verify leaves of each drafted token, until it is known which are taken."""
        if not plan.drafts:
            return
        layers, _, channels, steps = self._conv.shape
        slots, tokens = plan.drafts + 1, plan.draft_tokens
        self._drafted = self._recurrent.new_zeros(layers, slots, tokens, *self._recurrent.shape[2:])
        window = (channels, tokens + steps - 1) if plan.shares_windows else (tokens, channels, steps)
        self._drafted_inputs = self._conv.new_zeros(layers, slots, *window)

    def add_ngrams(self, config: NgramConfig, layers: Sequence[int], channels: int) -> None:
        """The last tokens of each request, and what the convolutions of these layers still see."""
        own = [layer for layer in layers if layer in config.layers]
        if not own:
            return
        slots, device = self._conv.shape[1], self._conv.device
        self.tokens = torch.full((slots, config.longest - 1), config.end, dtype=torch.int64, device=device)
        self._seen = self._conv.new_zeros(len(own), slots, channels, config.steps)
        self._seen_places = {layer: place for place, layer in enumerate(own)}

    def seen(self, layer_id: int) -> torch.Tensor:
        """[slots, channels, steps] of a layer with n-grams."""
        return self._seen[self._seen_places[layer_id]]

    def held(self) -> Iterator[torch.Tensor]:
        return (one for one in vars(self).values() if isinstance(one, torch.Tensor))

    def layer(self, layer_id: int) -> LayerState:
        place = self._places[layer_id]
        return LayerState(self._conv[place], self._recurrent[place], self._row[place])
