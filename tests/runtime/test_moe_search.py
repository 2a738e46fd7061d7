"""Choices of Triton configurations: what fits a layer, what wins beside the server, on a clock of numbers."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf

import pytest

from runtime.autotune.search import SearchPolicy
from runtime.moe_configs.candidates import GRID, SHARED, Choice, Layer, Tile, buckets, choices, crossed
from runtime.moe_configs.search import PRESENT, Decided, Named, decide_all

BF16 = Layer(64, 6, "", 0, may_tma=True)
FP8 = Layer(256, 8, "fp8_w8a8", 128, may_tma=True)
INT4 = Layer(128, 8, "int4_w4a16", 0, may_tma=False)
Times = Callable[[int, Named], float]


class Bench:
    """Milliseconds of each choice with noise. `launched` counts what a GPU would have run."""

    def __init__(self, times: Times, noise: float = 0.003) -> None:
        self._times, self._noise, self._random = times, noise, random.Random(1)
        self.launched = 0

    @contextmanager
    def __call__(self, rows: int) -> Iterator[Callable[[Sequence[Named], int], list[float]]]:
        def clock(names: Sequence[Named], launches: int) -> list[float]:
            self.launched += launches * len(names)
            return [self._times(rows, name) * self._random.gauss(1, self._noise) for name in names]

        yield clock


def decided(layer: Layer, times: Times) -> list[Decided]:
    return decide_all(buckets(8192, ()), lambda rows: choices(layer, rows), Bench(times), SearchPolicy())


def by_tile(rows: int, name: Named) -> float:
    """The higher the batch, the larger the best tile; the server's own is half as fast."""
    if name is PRESENT:
        return 2.0
    best = 16 if rows < 64 else 64 if rows < 1024 else 128
    return 1.0 + 0.1 * abs(name.up.m - best) / 16 + 0.02 * (name.up != name.down) + 0.001 * name.up.stages


@pytest.mark.parametrize("layer", [BF16, FP8, INT4])
def test_every_choice_fits_the_gpu_and_the_layer(layer: Layer) -> None:
    width = 1 if layer.dtype.startswith("fp8") else 2
    for rows in GRID:
        found = choices(layer, rows)
        assert 10 <= len(found) <= 110 and len(set(found)) == len(found)
        for one in found:
            assert one.up.m == one.down.m and not one.up.tma and (layer.may_tma or not one.down.tma)
            for tile in (one.up, one.down):
                assert (tile.m * tile.k + tile.k * tile.n) * width * tile.stages <= SHARED
                assert not layer.block_k or layer.block_k % tile.k == 0


def test_the_best_of_each_batch_wins_beside_a_slow_server() -> None:
    for one in decided(BF16, by_tile):
        assert isinstance(one.choice, Choice), one
        best = min(by_tile(one.rows, name) for name in choices(BF16, one.rows))
        assert by_tile(one.rows, one.choice) <= 1.03 * best and one.gain > 1.5


def test_a_server_that_is_as_fast_keeps_its_own() -> None:
    def times(rows: int, name: Named) -> float:
        return 1.0 if name is PRESENT or by_tile(rows, name) < 1.04 else 1.5

    assert [one.choice for one in decided(FP8, times)] == [PRESENT] * len(buckets(8192, ()))


def test_a_choice_that_fails_loses_and_so_does_all_where_the_servers_own_fails() -> None:
    def failing(rows: int, name: Named) -> float:
        return inf if name is not PRESENT and name.down.tma else by_tile(rows, name)

    assert not any(one.choice and one.choice.down.tma for one in decided(BF16, failing))
    nothing = decided(BF16, lambda rows, name: inf if name is PRESENT else 1.0)
    assert {one.choice for one in nothing} == {PRESENT}


def test_other_buckets_launch_less_than_the_pilots() -> None:
    bench = Bench(by_tile)
    decide_all(GRID[:-1], lambda rows: choices(BF16, rows), bench, SearchPolicy())
    all_of_it = sum(len(choices(BF16, rows)) for rows in GRID[:-1]) * 20
    assert bench.launched < all_of_it / 2


def test_tiles_of_leaders_are_tried_in_other_pairs() -> None:
    one, other = Tile(64, 64, 64, 1, 4, 3), Tile(64, 128, 64, 1, 4, 3)
    tall = Tile(128, 64, 64, 1, 4, 3)
    pairs = crossed([Choice(one, one), Choice(other, other), Choice(tall, tall)])
    assert set(pairs) == {Choice(one, other), Choice(other, one)}


def test_batch_sizes_reach_the_largest_and_hold_those_of_the_file_in_use() -> None:
    found = buckets(300, (5, 20, 900))
    assert found[-3:] == [128, 256, 512] and {5, 20} <= set(found)
