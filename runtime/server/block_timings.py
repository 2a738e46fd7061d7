"""Which of MiniMax-M3's kernels Triton times at a start: beside a buffer that empties a GPU's L2 cache.

The decorators of kernels/ops/attention/minimax_sparse, and get_empty_cache_for_benchmark of Triton's driver.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.server.config import ModelConfig
from runtime.server.releases import Release
from runtime.server.sizing import has_block_keys
from runtime.server.units import MIB

CACHE_BYTES = 256 * MIB
_PREFILL = 0


def timings(
    model: ModelConfig, release: Release, sm_major: int, page: int, requests: Iterable[int], width: int
) -> frozenset[int]:
    """What is timed, once each: decodes of so many `requests`, by powers of two, and what runs as a prefill,
    as several tokens a request do."""
    if not has_block_keys(model):
        return frozenset()
    if width > 1:
        return frozenset((_PREFILL,))
    whole = all(page % kind.blocks.block_size == 0 for kind in model.attention.values() if kind.blocks)
    if sm_major in release.pins_paged_blocks_on and whole:
        return frozenset()
    return frozenset(1 << (count - 1).bit_length() for count in requests)


def prefill_timings(model: ModelConfig) -> frozenset[int]:
    return frozenset((_PREFILL,)) if has_block_keys(model) else frozenset()
