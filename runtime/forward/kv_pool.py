"""Where keys and values live: a table from (request, position) to slot, and buffers of slots for each layer.

Slot 0 and table row 0 are padding: dummy and padded tokens read and write there, and no request ever does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from runtime.forward.compressed_pool import CompressedPool, PagedPool, compressed_row
from runtime.forward.gqa_pool import GqaPool, IndexedPool, KVRow, PooledKeysPool
from runtime.forward.kv_packing import FP8, PackedRow
from runtime.forward.packed_pages import PackedPagesPool
from runtime.forward.pool_shape import PoolShape, buffers
from runtime.forward.pooled_keys import pooled_keys
from runtime.forward.slots import PoolExhausted, SlidingSlots, SlotAllocator, mapped
from runtime.forward.state_pool import StatePool
from runtime.server.compressed_sizes import compressed_buffers
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.layer_config import AttentionConfig, MLAConfig
from runtime.server.parallel_config import ParallelConfig
from runtime.server.pool_plan import PoolPlan
from runtime.server.sizing import (
    PACKED,
    block_key_widths,
    has_block_keys,
    kept_layers,
    kv_heads_per_rank,
    latents_behind,
    packed_page_bytes,
    pooled_indexer,
    pooled_layers,
    sliding_layers,
    windows_alone,
)

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


class LatentPool:
    """One buffer [slots, 1, latent + rotary] a layer; the values are its first `kv_lora_rank` columns.

    Sparse attention packs fp8 latents with their scales unless its kernels take them plain, and keeps its
    indexer's keys beside them, in layers that have one: always in packed fp8, except in a float32 pool. Where
    a pool of tokens has one key, the last tokens of a request are kept, too, until their pool is whole; on a
    CPU, all are. Layers `behind` a window have latents of their own sizes, plain ones, in fewer slots where
    they are `sliding`.
    """

    def __init__(
        self,
        shape: PoolShape,
        mla: MLAConfig,
        packed: bool = True,
        requests: int = 0,
        behind: Mapping[int, MLAConfig] | None = None,
        sliding: SlidingSlots | None = None,
    ) -> None:
        self.sliding = sliding
        self._latents = _latents_behind(shape, behind or {}, sliding)
        shape = replace(shape, layers=tuple(one for one in shape.layers if one not in self._latents))
        self.latent_row, self.index_row = packed_rows(shape.dtype, mla, packed)
        width = self.latent_row.bytes if self.latent_row else mla.cache_dim
        dtype = torch.uint8 if self.latent_row else shape.dtype
        self._latents |= buffers(shape, dict.fromkeys(shape.layers, (1, width)), dtype)
        self._index_keys: dict[int, torch.Tensor] = {}
        self._tails: list[dict[int, torch.Tensor]] = []
        is_pooled = mla.indexer is not None and mla.indexer.pool > 1
        self.keeps_pooled = is_pooled and shape.device.type == "cpu"
        if mla.indexer and self.keeps_pooled:
            row = (2 * mla.indexer.head_dim,)
            self._index_keys = buffers(shape, dict.fromkeys(shape.layers, row), shape.dtype)
        elif mla.indexer and is_pooled:
            self._index_keys, *self._tails = pooled_keys(shape, mla.indexer, requests)
        elif mla.indexer:
            width = self.index_row.bytes if self.index_row else mla.indexer.head_dim
            dtype = torch.uint8 if self.index_row else shape.dtype
            own = replace(shape, layers=tuple(one for one in shape.layers if one not in mla.indexer.sharing))
            self._index_keys = buffers(own, dict.fromkeys(own.layers, (width,)), dtype)

    def held(self) -> Iterator[torch.Tensor]:
        for one in (self._latents, self._index_keys, *self._tails):
            yield from one.values()

    def latents(self, layer_id: int) -> torch.Tensor:
        return self._latents[layer_id]

    def index_keys(self, layer_id: int) -> torch.Tensor:
        return self._index_keys[layer_id]

    def slot_map(self, layer_id: int) -> torch.Tensor | None:
        return mapped(self.sliding, layer_id)


def _latents_behind(
    shape: PoolShape, behind: Mapping[int, MLAConfig], sliding: SlidingSlots | None
) -> dict[int, torch.Tensor]:
    own = replace(shape, layers=tuple(behind))
    fewer = dict.fromkeys(sliding.layers, sliding.rows) if sliding else {}
    return buffers(own, {layer: (1, mla.cache_dim) for layer, mla in behind.items()}, shape.dtype, fewer)


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
    cache: GqaPool | LatentPool | CompressedPool
    states: StatePool | None = None

    def allocate(self, count: int) -> torch.Tensor:
        """A slot for each of `count` tokens, and one in the sliding layers."""
        sliding = self._sliding
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
        if self._sliding:
            self._sliding.drop(slots)
        self.slots.free(slots)
        self.requests.free([request])

    @property
    def _sliding(self) -> SlidingSlots | None:
        return self.cache.sliding if isinstance(self.cache, (GqaPool, LatentPool)) else None


def make_kv_pool(
    plan: PoolPlan, model: ModelConfig, parallel: ParallelConfig, layers: Sequence[int], device: torch.device
) -> KVPool:
    """The pool of one stage of a target model."""
    requests = ReqToTokenPool(plan.rows, plan.row_length, device)
    pooled = pooled_layers(model, layers, plan.pools_next)
    slots = SlotAllocator(plan.tokens, device, windows_alone(model, pooled))
    states = make_states(plan, model, parallel, layers, device)
    cache = make_cache(plan, model, parallel, pooled, device, sliding_layers(model, pooled))
    return KVPool(requests, slots, cache, states)


def make_paged_pool(
    plan: PoolPlan, model: ModelConfig, runtime: RuntimeConfig, layers: Sequence[int], device: torch.device
) -> KVPool:
    """What SGLang keeps of groups of tokens: this runtime has none of its tokens in it."""
    assert plan.compressed is not None
    requests = ReqToTokenPool(plan.rows, plan.row_length, device)
    paged = compressed_buffers(plan.compressed, model, runtime, layers)
    rows = {layer: compressed_row(model, layer) for layer in layers}
    held = PagedPool(paged, rows, DTYPES[plan.kv_dtype], device)
    return KVPool(requests, SlotAllocator(0, device), held)


def make_states(
    plan: PoolPlan, model: ModelConfig, parallel: ParallelConfig, layers: Sequence[int], device: torch.device
) -> StatePool | None:
    if plan.states is None or model.recurrent is None:
        return None
    own = [layer for layer in layers if model.is_recurrent(layer)]
    shape = model.recurrent.state_shape(parallel.attn_tp)
    conv, recurrent = DTYPES[plan.states.conv_dtype], DTYPES[plan.states.recurrent_dtype]
    states = StatePool(plan.states.slots, own, shape, conv, recurrent, device)
    states.add_drafts(plan.states)
    if model.ngrams is not None and model.streams is not None:
        states.add_ngrams(model.ngrams, layers, model.streams.count * model.hidden_size)
    return states


def make_cache(
    plan: PoolPlan,
    model: ModelConfig,
    parallel: ParallelConfig,
    layers: Sequence[int],
    device: torch.device,
    apart: Sequence[int] = (),
) -> GqaPool | LatentPool | CompressedPool:
    """The buffers alone, as a draft adds them to its target's pool; layers `apart` keep fewer tokens."""
    kept = tuple(kept_layers(model, layers))
    tokens = 0 if plan.keeps_nothing else plan.tokens
    shape = PoolShape(tokens, plan.page_size, kept, DTYPES[plan.kv_dtype], device)
    sliding = SlidingSlots(plan.sliding_tokens, apart, shape) if apart and plan.sliding_tokens else None
    if model.mla is not None:
        behind = latents_behind(model, kept)
        return LatentPool(shape, model.mla, plan.packed, plan.rows, behind, sliding)
    if model.compressed is not None:
        return CompressedPool(shape, {layer: compressed_row(model, layer) for layer in kept})
    if plan.index_dtype == PACKED:
        return PackedPagesPool(shape, packed_page_bytes(model, parallel))
    rows = {layer: _row(model.layer_attention(layer), parallel) for layer in kept}
    if has_block_keys(model):
        dtype = DTYPES[plan.index_dtype or plan.kv_dtype]
        return IndexedPool(shape, rows, block_key_widths(model, kept), dtype)
    pooled = pooled_indexer(model)
    if pooled is not None:
        return PooledKeysPool(shape, rows, pooled, plan.rows)
    return GqaPool(shape, rows, sliding)


def _row(attention: AttentionConfig, parallel: ParallelConfig) -> KVRow:
    return KVRow(kv_heads_per_rank(attention, parallel), attention.head_dim, attention.value_width)
