"""What DeepSeek-V4's attention keeps of tokens: keys, and what groups of them are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from runtime.forward.pool_shape import PoolShape, buffers
from runtime.server.compressed_sizes import CompressedBuffer
from runtime.server.config import ModelConfig


@dataclass(frozen=True, slots=True)
class CompressedRow:
    """How wide a layer's key is, an indexer's, and what their compressors keep of a token: 0 for none."""

    key: int
    state: int = 0
    index: int = 0
    index_state: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class GroupBuffers:
    """What each token gives to its group, in fp32; and the group's key, in the slot of its last token."""

    tokens: torch.Tensor
    groups: torch.Tensor


class CompressedPool:
    """Keys, which are values too, of every token; in layers that compress, what the keys of groups are made
    of, and these; in layers that choose, the same of an indexer."""

    def __init__(self, shape: PoolShape, rows: Mapping[int, CompressedRow]) -> None:
        self._keys = buffers(shape, {layer: (row.key,) for layer, row in rows.items()}, shape.dtype)
        groups = {layer: (row.key if row.state else 0, row.state) for layer, row in rows.items()}
        self._compressed = _group_buffers(shape, groups)
        indexes = {layer: (row.index, row.index_state) for layer, row in rows.items()}
        self._indexed = _group_buffers(shape, indexes)

    def keys(self, layer_id: int) -> torch.Tensor:
        return self._keys[layer_id]

    def compressed(self, layer_id: int) -> GroupBuffers:
        return self._compressed[layer_id]

    def indexed(self, layer_id: int) -> GroupBuffers:
        return self._indexed[layer_id]


class PagedPool(CompressedPool):
    """As SGLang lays them out, in bytes. Of each a forward here has the first row, for the padding slot."""

    def __init__(
        self,
        paged: Iterable[CompressedBuffer],
        rows: Mapping[int, CompressedRow],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.held = {one.what: [_made(one, device) for _ in range(one.count)] for one in paged if one.count}
        left = {what: iter(held) for what, held in self.held.items()}

        def of(what: str, width: int, dtype: torch.dtype) -> torch.Tensor:
            return next(left[what])[:1].view(dtype)[:, :width]

        def groups(of_what: str, state: int, key: int) -> GroupBuffers:
            tokens = of(f"unfinished keys of {of_what}", state, torch.float32)
            return GroupBuffers(tokens, of(f"keys of {of_what}", key, dtype))

        self._keys = {layer: of("keys of windows", row.key, dtype) for layer, row in rows.items()}
        self._compressed = {
            layer: groups("4 tokens" if row.index else "128 tokens", row.state, row.key)
            for layer, row in rows.items()
            if row.state
        }
        self._indexed = {
            layer: groups("indexers", row.index_state, row.index) for layer, row in rows.items() if row.index
        }

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for held in self.held.values() for one in held)


def _made(one: CompressedBuffer, device: torch.device) -> torch.Tensor:
    return torch.empty(one.rows, one.row_bytes, dtype=torch.uint8, device=device)


def _group_buffers(shape: PoolShape, rows: Mapping[int, tuple[int, int]]) -> dict[int, GroupBuffers]:
    keys = buffers(shape, {layer: (key,) for layer, (key, _) in rows.items()}, shape.dtype)
    states = buffers(shape, {layer: (state,) for layer, (_, state) in rows.items()}, torch.float32)
    return {layer: GroupBuffers(states[layer], keys[layer]) for layer in rows}


def compressed_row(model: ModelConfig, layer: int) -> CompressedRow:
    """Keys and gates of a token's group, and in layers that choose, of the next one too."""
    assert model.compressed is not None
    kind, width = model.attention_kinds[layer], model.layer_attention(layer).head_dim
    if kind not in model.compressed.rates:
        return CompressedRow(width)
    if kind != "sparse":
        return CompressedRow(width, 2 * width)
    index = model.compressed.indexer.head_dim
    return CompressedRow(width, 4 * width, index, 4 * index)
