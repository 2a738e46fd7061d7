"""Keys and values of each token apart, and what indexers keep beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from runtime.forward.pool_shape import PoolShape, buffers
from runtime.forward.slots import SlidingSlots, mapped
from runtime.server.layer_config import IndexerConfig


@dataclass(frozen=True, slots=True)
class KVRow:
    """One token in one layer: as many heads, so wide."""

    heads: int
    key: int
    value: int


class GqaPool:
    """Keys and values apart: two buffers [slots, kv heads, head size] a layer, by the `rows` of each."""

    def __init__(
        self, shape: PoolShape, rows: Mapping[int, KVRow], sliding: SlidingSlots | None = None
    ) -> None:
        self.sliding = sliding
        fewer = dict.fromkeys(sliding.layers, sliding.rows) if sliding else {}
        keys = {layer: (row.heads, row.key) for layer, row in rows.items()}
        values = {layer: (row.heads, row.value) for layer, row in rows.items()}
        self._keys, self._values = (buffers(shape, one, shape.dtype, fewer) for one in (keys, values))

    def keys(self, layer_id: int) -> torch.Tensor:
        return self._keys[layer_id]

    def values(self, layer_id: int) -> torch.Tensor:
        return self._values[layer_id]

    def slot_map(self, layer_id: int) -> torch.Tensor | None:
        """From a token's slot to the one it has in this layer, where these differ."""
        return mapped(self.sliding, layer_id)


class IndexedPool(GqaPool):
    """... and one buffer [slots, D] of an indexer's keys in some layers, by the `widths` of these."""

    def __init__(
        self, shape: PoolShape, rows: Mapping[int, KVRow], widths: Mapping[int, int], dtype: torch.dtype
    ) -> None:
        super().__init__(shape, rows)
        own = replace(shape, layers=tuple(widths))
        self._index_keys = buffers(own, {layer: (width,) for layer, width in widths.items()}, dtype)

    def index_keys(self, layer_id: int) -> torch.Tensor:
        return self._index_keys[layer_id]


class PooledKeysPool(GqaPool):
    """... where a group of tokens has one key. On a CPU all tokens' are kept; elsewhere what SGLang keeps,
    srt/mem_cache/qsa_kv_pool.py: a key of each group, and of each request the keys and the positions of the
    group that is not whole yet, where padding is a request, too. Nothing here reads those."""

    def __init__(
        self, shape: PoolShape, rows: Mapping[int, KVRow], indexer: IndexerConfig, requests: int
    ) -> None:
        super().__init__(shape, rows)
        self.keeps_all, width = shape.device.type == "cpu", indexer.head_dim
        self._index_keys: dict[int, torch.Tensor] = {}
        self._held: list[torch.Tensor] = []
        if self.keeps_all:
            self._index_keys = buffers(shape, dict.fromkeys(shape.layers, (width,)), shape.dtype)
            return
        groups, last = -(-shape.rows // indexer.pool), (requests + 1) * indexer.pool

        def kept(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.zeros(sizes, dtype=dtype, device=shape.device)

        self._held = [kept(last, width) for _ in shape.layers]
        self._held += [kept(last, 3, dtype=torch.int64), kept(len(shape.layers), groups * width)]

    def index_keys(self, layer_id: int) -> torch.Tensor:
        return self._index_keys[layer_id]

    def held(self) -> Iterator[torch.Tensor]:
        for one in (self._keys, self._values, self._index_keys):
            yield from one.values()
        yield from self._held
