"""Which slots of a pool are free, and where a token is in a smaller one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from runtime.forward.pool_shape import PoolShape

PADDING_SLOT = 0


class PoolExhausted(RuntimeError):
    """No slot or request row is left: a running request has to end first."""


class SlotAllocator:
    """The free slots as a stack on the device: nothing is transferred and the stack itself never grows."""

    def __init__(self, tokens: int, device: torch.device, maps: bool = False) -> None:
        """`maps`: with a map from each slot to itself, as SGLang has where all are those of a window."""
        self._slots = torch.arange(PADDING_SLOT + 1, tokens + 1, dtype=torch.int64, device=device)
        self.map = torch.arange(tokens + 2, dtype=torch.int64, device=device) if maps else None
        self._taken = 0

    @property
    def available(self) -> int:
        return self._slots.shape[0] - self._taken

    def allocate(self, count: int) -> torch.Tensor:
        if count > self.available:
            raise PoolExhausted(f"{count} more tokens, but the KV pool has {self.available} slots left")
        slots = self._slots[self._taken : self._taken + count].clone()
        self._taken += count
        return slots

    def free(self, slots: torch.Tensor) -> None:
        self._taken -= slots.shape[0]
        self._slots[self._taken : self._taken + slots.shape[0]].copy_(slots)


class SlidingSlots:
    """Fewer slots for `layers` that look back a window only, and the `map` to them from a token's slot."""

    def __init__(self, tokens: int, layers: Sequence[int], shape: PoolShape) -> None:
        self.rows, self.layers = tokens + shape.page_size, frozenset(layers)
        self.map = torch.zeros(shape.rows, dtype=torch.int64, device=shape.device)
        self._slots = SlotAllocator(tokens, shape.device)

    @property
    def available(self) -> int:
        return self._slots.available

    def admit(self, slots: torch.Tensor) -> None:
        self.map[slots] = self._slots.allocate(slots.shape[0])

    def drop(self, slots: torch.Tensor) -> None:
        self._slots.free(self.map[slots])
        self.map[slots] = PADDING_SLOT


def mapped(sliding: SlidingSlots | None, layer: int) -> torch.Tensor | None:
    """From a token's slot to the one it has in this layer, where these differ."""
    return sliding.map if sliding and layer in sliding.layers else None
