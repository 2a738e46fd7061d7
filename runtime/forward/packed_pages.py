"""Pages of keys and values in nvfp4, as SGLang has MiniMax-M3.1's on Blackwell: nothing here reads them.

srt/mem_cache/minimax_m3_nvfp4_pool.py
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from runtime.forward.gqa_pool import GqaPool
from runtime.forward.pool_shape import PoolShape


class PackedPagesPool(GqaPool):
    """One tensor of pages of all layers, in `bytes_a_page` of each layer; and one of an indexer's keys."""

    def __init__(self, shape: PoolShape, bytes_a_page: tuple[int, int]) -> None:
        self.sliding = None
        self._keys, self._values = {}, {}
        pages, layers = -(-shape.rows // shape.page_size), len(shape.layers)
        sizes = [(layers, pages, row) for row in bytes_a_page] if layers else []
        self._held = [torch.zeros(size, dtype=torch.uint8, device=shape.device) for size in sizes]

    def held(self) -> Iterator[torch.Tensor]:
        yield from self._held
