"""Where keys and values live: a table from (request, position) to slot, and buffers of slots for each layer.

Slot 0 and table row 0 are padding: dummy and padded tokens read and write there, and no request ever does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from runtime.forward.kv_packing import FP8, PackedRow
from runtime.forward.slots import PoolExhausted, PoolShape, SlidingSlots, SlotAllocator
from runtime.forward.state_pool import StatePool
from runtime.server.config import ModelConfig
from runtime.server.layer_config import AttentionConfig, MLAConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.sizes.pool_plan import PoolPlan
from runtime.server.sizes.sizing import kept_layers, kv_heads_per_rank, sliding_layers

PADDING_REQUEST = 0
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": FP8,
    "fp8_e5m2": torch.float8_e5m2,
}


class ReqToTokenPool:
    """`table` [requests + 1, context + headroom] int32: the slot of each token of each running request."""

    def __init__(self, max_requests: int, row_length: int, device: torch.device) -> None:
        self.device = device
        self.table = torch.zeros(max_requests + 1, row_length, dtype=torch.int32, device=device)
        self._free = list(range(max_requests, PADDING_REQUEST, -1))

    def allocate(self, count: int) -> list[int]:
        if count > len(self._free):
            raise PoolExhausted(f"{count} more requests, but the table has {len(self._free)} rows left")
        return [self._free.pop() for _ in range(count)]

    def free(self, requests: Sequence[int]) -> None:
        self._free.extend(requests)

    def write(self, request: int, start: int, slots: torch.Tensor) -> None:
        self.table[request, start : start + slots.shape[0]].copy_(slots)


@dataclass(frozen=True, slots=True)
class KVRow:
    """One token in one layer: the number of heads and the width of a key and of a value."""

    heads: int
    key: int
    value: int


class GqaPool:
    """Keys and values apart: two buffers [slots, kv heads, head size] for each layer."""

    def __init__(
        self, shape: PoolShape, rows: Mapping[int, KVRow], sliding: SlidingSlots | None = None
    ) -> None:
        self.sliding = sliding
        counts = dict.fromkeys(shape.layers, shape.rows)
        counts |= dict.fromkeys(sliding.layers, sliding.rows) if sliding else {}
        self._keys, self._values = {}, {}
        for layer, row in rows.items():
            self._keys[layer] = shape.buffer(counts[layer], row.heads, row.key)
        for layer, row in rows.items():
            self._values[layer] = shape.buffer(counts[layer], row.heads, row.value)

    def keys(self, layer_id: int) -> torch.Tensor:
        return self._keys[layer_id]

    def values(self, layer_id: int) -> torch.Tensor:
        return self._values[layer_id]

    def slot_map(self, layer_id: int) -> torch.Tensor | None:
        """From a token's slot to the one it has in this layer, where these differ."""
        return self.sliding.map if self.sliding and layer_id in self.sliding.layers else None


class LatentPool:
    """One buffer [slots, 1, latent + rotary] for each layer; the values are its first `kv_lora_rank` columns.

    Sparse attention packs fp8 latents with their scales unless its kernels take them plain, and keeps its
    indexer's keys beside them: in packed fp8, except in a float32 pool.
    """

    sliding = None

    def __init__(self, shape: PoolShape, mla: MLAConfig, packed: bool = True) -> None:
        self.latent_row, self.index_row = packed_rows(shape.dtype, mla, packed)
        self._latents = {layer: _buffer(shape, self.latent_row, 1, mla.cache_dim) for layer in shape.layers}
        keys = shape.layers if mla.indexer else ()
        width = mla.indexer.head_dim if mla.indexer else 0
        self._index_keys = {layer: _buffer(shape, self.index_row, width) for layer in keys}

    def latents(self, layer_id: int) -> torch.Tensor:
        return self._latents[layer_id]

    def index_keys(self, layer_id: int) -> torch.Tensor:
        return self._index_keys[layer_id]

    def slot_map(self, layer_id: int) -> None:
        """All layers have a token in the same slot."""


def _buffer(shape: PoolShape, row: PackedRow | None, *sizes: int) -> torch.Tensor:
    if row is None:
        return shape.buffer(shape.rows, *sizes)
    return shape.buffer(shape.rows, *sizes[:-1], row.bytes, dtype=torch.uint8)


def packed_rows(
    dtype: torch.dtype, mla: MLAConfig, packed: bool = True
) -> tuple[PackedRow | None, PackedRow | None]:
    """How latents and indexer keys are packed; `None` means plain values of `dtype`."""
    if mla.indexer is None:
        return None, None
    packs = packed and dtype.itemsize == 1
    latent = PackedRow(mla.kv_lora_rank, mla.qk_rope_head_dim) if packs else None
    index = PackedRow(mla.indexer.head_dim) if dtype is not torch.float32 else None
    return latent, index


@dataclass(frozen=True, slots=True)
class KVPool:
    """What a forward reads and writes. A draft model shares all but the `cache`."""

    requests: ReqToTokenPool
    slots: SlotAllocator
    cache: GqaPool | LatentPool
    states: StatePool | None = None

    def allocate(self, count: int) -> torch.Tensor:
        """A slot for each of `count` tokens, and one in the sliding layers."""
        sliding = self.cache.sliding
        if sliding and count > sliding.available:
            raise PoolExhausted(
                f"{count} more tokens, but sliding layers have {sliding.available} slots left"
            )
        slots = self.slots.allocate(count)
        if sliding:
            sliding.admit(slots)
        return slots

    def release(self, request: int, length: int) -> None:
        """A request of `length` tokens has ended."""
        slots = self.requests.table[request, :length].long()
        if self.cache.sliding:
            self.cache.sliding.drop(slots)
        self.slots.free(slots)
        self.requests.free([request])


def make_kv_pool(
    plan: PoolPlan, model: ModelConfig, parallel: ParallelConfig, layers: Sequence[int], device: torch.device
) -> KVPool:
    """The pool of one stage of a target model."""
    requests = ReqToTokenPool(plan.max_running_requests, plan.row_length, device)
    slots = SlotAllocator(plan.tokens, device)
    states = _make_states(plan, model, parallel, layers, device)
    cache = make_cache(plan, model, parallel, layers, device, sliding_layers(model, layers))
    return KVPool(requests, slots, cache, states)


def _make_states(
    plan: PoolPlan, model: ModelConfig, parallel: ParallelConfig, layers: Sequence[int], device: torch.device
) -> StatePool | None:
    if plan.states is None or model.recurrent is None:
        return None
    own = [layer for layer in layers if model.is_recurrent(layer)]
    dtypes = DTYPES[plan.states.conv_dtype], DTYPES[plan.states.recurrent_dtype]
    return StatePool(plan.states, own, model.recurrent.state_shape(parallel.attn_tp), *dtypes, device)


def make_cache(
    plan: PoolPlan,
    model: ModelConfig,
    parallel: ParallelConfig,
    layers: Sequence[int],
    device: torch.device,
    apart: Sequence[int] = (),
) -> GqaPool | LatentPool:
    """The buffers alone, as a draft adds them to its target's pool; layers `apart` keep fewer tokens."""
    kept = tuple(kept_layers(model, layers))
    shape = PoolShape(plan.tokens, plan.page_size, kept, DTYPES[plan.kv_dtype], device)
    if model.mla is not None:
        return LatentPool(shape, model.mla, plan.packed)
    sliding = SlidingSlots(plan.sliding_tokens, apart, shape) if apart and plan.sliding_tokens else None
    return GqaPool(shape, {layer: _row(model.layer_attention(layer), parallel) for layer in kept}, sliding)


def _row(attention: AttentionConfig, parallel: ParallelConfig) -> KVRow:
    return KVRow(kv_heads_per_rank(attention, parallel), attention.head_dim, attention.head_dim)
