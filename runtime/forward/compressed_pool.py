"""What DeepSeek-V4's attention keeps of tokens: keys, and what groups of them are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from runtime.forward.pool_shape import PoolShape, buffers
from runtime.server.compressed_sizes import CompressedBuffer
from runtime.server.config import ModelConfig


class CompressedPool:
    """Three buffers a layer: keys, which are values too; what compressors keep of tokens for the keys of
    groups; and what those of its indexer keep. `rows` are how wide they are, 0 where a layer has none.

    Each token has a row in all three: this runtime makes the keys of groups anew in every forward.
    """

    def __init__(self, shape: PoolShape, rows: Mapping[int, tuple[int, int, int]]) -> None:
        self._keys, self._compressed, self._indexed = (
            buffers(shape, {layer: (widths[part],) for layer, widths in rows.items()}, shape.dtype)
            for part in range(3)
        )

    def keys(self, layer_id: int) -> torch.Tensor:
        return self._keys[layer_id]

    def compressed(self, layer_id: int) -> torch.Tensor:
        return self._compressed[layer_id]

    def indexed(self, layer_id: int) -> torch.Tensor:
        return self._indexed[layer_id]


class PagedPool:
    """As SGLang lays them out, in bytes: nothing of this runtime reads it."""

    def __init__(self, buffers: Iterable[CompressedBuffer], device: torch.device) -> None:
        self.held = {
            one.what: [self._made(one, device) for _ in range(one.count)] for one in buffers if one.count
        }

    def _made(self, one: CompressedBuffer, device: torch.device) -> torch.Tensor:
        return torch.empty(one.rows, one.row_bytes, dtype=torch.uint8, device=device)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for held in self.held.values() for one in held)


def compressed_rows(model: ModelConfig, layer: int) -> tuple[int, int, int]:
    """Keys and gates of a token's group, and in layers that choose, of the next one too."""
    assert model.compressed is not None
    kind, width = model.attention_kinds[layer], model.layer_attention(layer).head_dim
    if kind not in model.compressed.rates:
        return width, 0, 0
    chooses = kind == "sparse"
    return width, 2 * width * (1 + chooses), 4 * model.compressed.indexer.head_dim * chooses
