"""The KV cache: a table from (request, position) to slot, and buffers of slots for each layer.

Slot 0 and table row 0 are padding: dummy and padded tokens read and write there, and no request ever does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from runtime.forward.kv_packing import FP8, PackedRow
from runtime.server.config import ModelConfig
from runtime.server.layer_config import MLAConfig, StateShape
from runtime.server.parallel import ParallelConfig
from runtime.server.sizes.pool_plan import PoolPlan
from runtime.server.sizes.sizing import kept_layers, kv_heads_per_rank, sliding_layers
from runtime.server.sizes.state_sizes import StatePlan

PADDING_REQUEST, PADDING_SLOT = 0, 0
DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "fp8_e4m3": FP8,
    "fp8_e5m2": torch.float8_e5m2,
}


@dataclass(frozen=True, slots=True)
class PoolShape:
    """The sizes of a pool: one page of padding, then `tokens` usable slots, for each of `layers`."""

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


class SlidingSlots:
    """KV slots of sliding-window `layers`, fewer than usual; `map` turns a token's slot into theirs."""

    def __init__(self, tokens: int, layers: Sequence[int], shape: PoolShape) -> None:
        self.rows, self.layers = tokens + shape.page_size, frozenset(layers)
        self.map = shape.buffer(shape.rows, dtype=torch.int64)


class GqaPool:
    """Keys and values in two buffers [slots, kv heads, head size] for each layer."""

    def __init__(
        self, shape: PoolShape, heads: Mapping[int, tuple[int, int]], sliding: SlidingSlots | None = None
    ) -> None:
        """`heads` maps each layer to its number of heads and the size of a head."""
        self.sliding = sliding
        counts = dict.fromkeys(shape.layers, shape.rows)
        counts |= dict.fromkeys(sliding.layers, sliding.rows) if sliding else {}
        self._keys = {layer: shape.buffer(counts[layer], *sizes) for layer, sizes in heads.items()}
        self._values = {layer: shape.buffer(counts[layer], *sizes) for layer, sizes in heads.items()}

    def keys(self, layer_id: int) -> torch.Tensor:
        return self._keys[layer_id]

    def values(self, layer_id: int) -> torch.Tensor:
        return self._values[layer_id]

    def slot_map(self, layer_id: int) -> torch.Tensor | None:
        """Return the map from a token's slot to its slot in this layer, or None if both are equal."""
        return self.sliding.map if self.sliding and layer_id in self.sliding.layers else None


class LatentPool:
    """One buffer [slots, 1, latent + rotary] per layer; the values are its first `kv_lora_rank` columns.

    Under sparse attention fp8 latents are packed with their scales unless the kernels read plain ones, and
    the indexer's keys are kept too: in packed fp8, except in a float32 pool.
    """

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


def _buffer(shape: PoolShape, row: PackedRow | None, *sizes: int) -> torch.Tensor:
    if row is None:
        return shape.buffer(shape.rows, *sizes)
    return shape.buffer(shape.rows, *sizes[:-1], row.bytes, dtype=torch.uint8)


def packed_rows(
    dtype: torch.dtype, mla: MLAConfig, packed: bool = True
) -> tuple[PackedRow | None, PackedRow | None]:
    """Return how latents and indexer keys are packed; None means plain values of `dtype`."""
    if mla.indexer is None:
        return None, None
    packs = packed and dtype.itemsize == 1
    latent = PackedRow(mla.kv_lora_rank, mla.qk_rope_head_dim) if packs else None
    index = PackedRow(mla.indexer.head_dim) if dtype is not torch.float32 else None
    return latent, index


@dataclass(frozen=True, slots=True)
class KVPool:
    """The memory that a forward reads and writes. A draft model shares everything but `cache`.

    `table` [requests + 1, context + headroom] int32 holds the slot of each token of each running request.
    `free` holds the slots that a server gives to new tokens.
    """

    table: torch.Tensor
    free: torch.Tensor
    cache: GqaPool | LatentPool
    states: StatePool | None = None


def make_kv_pool(
    plan: PoolPlan, model: ModelConfig, parallel: ParallelConfig, layers: Sequence[int], device: torch.device
) -> KVPool:
    """Return the pool of one pipeline stage of the target model."""
    table = torch.zeros(plan.max_running_requests + 1, plan.row_length, dtype=torch.int32, device=device)
    free = torch.arange(PADDING_SLOT + 1, plan.tokens + 1, dtype=torch.int64, device=device)
    states = _make_states(plan, model, parallel, layers, device)
    cache = make_cache(plan, model, parallel, layers, device, sliding_layers(model, layers))
    return KVPool(table, free, cache, states)


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
    """Return the buffers alone, as a draft adds them to a pool. Layers in `apart` keep fewer tokens."""
    kept = tuple(kept_layers(model, layers))
    shape = PoolShape(plan.tokens, plan.page_size, kept, DTYPES[plan.kv_dtype], device)
    if model.mla is not None:
        return LatentPool(shape, model.mla, plan.packed)
    sliding = SlidingSlots(plan.sliding_tokens, apart, shape) if apart and plan.sliding_tokens else None
    attention = {layer: model.layer_attention(layer) for layer in kept}
    heads = {layer: (kv_heads_per_rank(one, parallel), one.head_dim) for layer, one in attention.items()}
    return GqaPool(shape, heads, sliding)


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
