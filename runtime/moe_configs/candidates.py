"""Configurations of SGLang's fused MoE kernels that may be fast, by a layer's types and rows per expert."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

SHARED = 227 * 1024  # bytes of a block's shared memory on Hopper and Blackwell
_ROWS = {16: (0, 64), 32: (2, 128), 64: (8, None), 128: (24, None)}  # per expert, for each height of a tile
GRID = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384)


@dataclass(frozen=True, order=True)
class Tile:
    """One kernel's configuration. `tma` is for a second GEMM that reads through tensor descriptors."""

    m: int
    n: int
    k: int
    group: int
    warps: int
    stages: int
    tma: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the configuration as a file holds it."""
        told = {
            "BLOCK_SIZE_M": self.m,
            "BLOCK_SIZE_N": self.n,
            "BLOCK_SIZE_K": self.k,
            "GROUP_SIZE_M": self.group,
            "num_warps": self.warps,
            "num_stages": self.stages,
        }
        return {**told, "USE_TMA": True} if self.tma else told


@dataclass(frozen=True, order=True)
class Choice:
    """The configurations of both GEMMs. Rows are sorted once for both, so `m` is the same."""

    up: Tile
    down: Tile


@dataclass(frozen=True)
class Layer:
    """What decides which configurations fit. `dtype` is spelled as in the file's name, "" for 16 bits."""

    experts: int
    top_k: int
    dtype: str
    block_k: int  # of a block-wise scale, 0 without
    may_tma: bool

    def rows_per_expert(self, rows: int) -> float:
        return rows * self.top_k / self.experts


def choices(layer: Layer, rows: int) -> list[Choice]:
    """Return each tile that fits for both GEMMs at once, and some pairs whose second tile uses TMA."""
    tiles = [one for one in _tiles(layer) if _fits(one.m, layer.rows_per_expert(rows))]
    same = [Choice(one, one) for one in tiles]
    return same + (list(_with_tma(tiles)) if layer.may_tma else [])


def crossed(best: Sequence[Choice]) -> list[Choice]:
    """Return other pairs of these choices' tiles. Nothing new is compiled, as each tile fits both GEMMs."""
    plain = [one for one in best if not one.down.tma]
    pairs = (Choice(one.up, other.down) for one, other in product(plain, plain) if one.up.m == other.down.m)
    return [pair for pair in dict.fromkeys(pairs) if pair not in best]


def buckets(largest: int, found: Sequence[int]) -> list[int]:
    """Return the batch sizes of a file: our grid up to the largest batch, and those of the file in use."""
    last = next((rows for rows in GRID if rows >= largest), GRID[-1])
    return sorted({rows for rows in (*GRID, *found) if 0 < rows <= last})


def _fits(height: int, rows: float) -> bool:
    least, most = _ROWS[height]
    return least <= rows and (most is None or rows <= most)


def _tiles(layer: Layer) -> Iterator[Tile]:
    width = {"fp8_w8a8": 1, "int8_w8a8": 1}.get(layer.dtype, 2)
    for m, n, k, stages in product(_ROWS, (32, 64, 128, 256), (64, 128, 256), (2, 3, 4, 5)):
        used = (m * k + k * n) * width * stages
        if used <= SHARED and _is_sensible(layer, m, n, k, stages, width):
            some = (4,) if m * n < 1 << 13 else (4, 8) if m * n < 1 << 15 else (8,)
            for group, warps in product((1,) if m < 64 else (1, 16), some):
                yield Tile(m, n, k, group, warps, stages)


def _is_sensible(layer: Layer, m: int, n: int, k: int, stages: int, width: int) -> bool:
    """Whether a tile suits: few rows wait for memory and need long steps, many rows need large tiles."""
    if layer.block_k and layer.block_k % k:
        return False
    if layer.dtype in ("int4_w4a16", "int8_w8a16"):
        return k <= 128 and n <= 128 and stages in (2, 4) and m <= 64 and m * n * k >= 1 << 15
    if m <= 32:
        return n <= 128 and stages >= 3 and (n >= 64 or (m == 16 and k >= 128)) and k * width >= 128
    return n >= 64 and k * width == 128 and stages in (3, 4) and m * n >= 1 << 12


def _with_tma(tiles: Sequence[Tile]) -> Iterator[Choice]:
    """Yield some of each height's tiles for the first GEMM, each with three TMA tiles for the second."""
    for height in _ROWS:
        same = [one for one in tiles if one.m == height and one.n <= 128]
        ups = same[len(same) // 2 :: 5][:2]
        downs = [one for one in same if one.n == 128 and one.stages in (3, 4)][:3]
        for up, down in product(ups, downs):
            yield Choice(up, Tile(down.m, down.n, down.k, down.group, down.warps, down.stages, tma=True))
