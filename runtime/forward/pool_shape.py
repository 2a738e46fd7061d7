"""How many slots a pool's buffers have, and of what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch


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


def buffers(
    shape: PoolShape,
    rows: Mapping[int, tuple[int, ...]],
    dtype: torch.dtype,
    fewer: Mapping[int, int] | None = None,
) -> dict[int, torch.Tensor]:
    """A buffer of the rows of each layer; of `fewer` in some layers."""
    counts = dict.fromkeys(shape.layers, shape.rows) | dict(fewer or {})
    return {
        layer: torch.zeros(counts[layer], *rows[layer], dtype=dtype, device=shape.device)
        for layer in shape.layers
    }
