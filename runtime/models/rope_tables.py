"""What turns queries and keys: a table for all layers that turn alike."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from runtime.layers.loading import Piece
from runtime.layers.rope import kept_frequencies, lengthened, rope_table, table_of_batch
from runtime.models.mixed_turns import MixedTurns
from runtime.server.layer_config import RopeConfig


class RopeTables(nn.Module):
    """Each is made with the attention of the first layer that it turns (get_rope of srt/layers), so that what
    making a long one takes is gone before most weights are there."""

    def __init__(self, device: torch.device, by_transformers: bool = False) -> None:
        """`by_transformers`: its layers have a table of each batch, made anew."""
        super().__init__()
        self._device, self._make = device, kept_frequencies if by_transformers else rope_table
        self._ropes: list[RopeConfig] = []
        self.mixed: MixedTurns | None = None

    def lay(self, rope: RopeConfig | None) -> str | None:
        """Its name."""
        if rope is None:
            return None
        if rope not in self._ropes:
            self.register_buffer(f"table_{len(self._ropes)}", self._make(rope, self._device))
            self._ropes.append(rope)
        return f"table_{self._ropes.index(rope)}"

    def tables(self, positions: torch.Tensor) -> dict[str, torch.Tensor]:
        """By their names, for tokens at these positions."""
        ropes = {f"table_{number}": rope for number, rope in enumerate(self._ropes)}
        if self._make is rope_table:
            return {name: self.get_buffer(name) for name in ropes}
        return {name: table_of_batch(rope, positions) for name, rope in ropes.items()}

    def mix(self, rope: RopeConfig, heads: slice) -> MixedTurns:
        """Beside the plain table, which SGLang makes before it, and keeps."""
        if self.mixed is None:
            self.mixed = MixedTurns(rope, heads, self._device)
        return self.mixed

    def pieces(self) -> Iterator[Piece]:
        if self.mixed is not None:
            yield from self.mixed.pieces()

    def reach(self, positions: int) -> None:
        for number, rope in enumerate(self._ropes if self._make is rope_table else ()):
            name = f"table_{number}"
            self.register_buffer(name, lengthened(self.get_buffer(name), rope, positions))
