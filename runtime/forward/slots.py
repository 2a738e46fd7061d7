"""Which slots of a pool are free, and where a token is in a smaller one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

PADDING_SLOT = 0


class PoolExhausted(RuntimeError):
    """No slot or request row is left: a running request has to end first."""


@dataclass(frozen=True, slots=True)
class PoolShape:
    """`tokens` usable slots behind one page of padding, for these layers."""

    tokens: int
    page_size: int
    layers: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def rows(self) -> int:
        return self.tokens + self.page_size

    def buffer(self, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        return torch.zeros(*sizes, dtype=dtype or self.dtype, device=self.device)


class SlotAllocator:
    """The free slots as a stack on the device: nothing is transferred and the stack itself never grows."""

    def __init__(self, tokens: int, device: torch.device) -> None:
        self._slots = torch.arange(PADDING_SLOT + 1, tokens + 1, dtype=torch.int64, device=device)
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
