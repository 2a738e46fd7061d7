"""Rows of a table that some layers are given of a token and of those before it, by their hashes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from runtime.server.bounds import check_model
from runtime.server.errors import ConfigError

_MASK = (1 << 64) - 1
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_APART = 10007  # the seeds of one layer and the next


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """Of 2 tokens, and of up to `longest`, `heads` rows each, together so wide. Each head has a part of the
    table of its own, of a prime number of rows, which are `least_rows` or more. What is made of them goes
    through a convolution of `taps` tokens, each `longest` before the next."""

    layers: tuple[int, ...]
    width: int
    longest: int
    heads: int
    least_rows: int
    divisor: int
    taps: int
    seed: int
    parts: int  # of a checkpoint, which the table lies in
    vocab_size: int
    end: int  # the token that nothing before counts beside

    def __post_init__(self) -> None:
        check_model(self)
        if self.width % self.tables:
            raise ConfigError(
                f"config.json: ple_embed_dim {self.width} is not evenly that of {self.tables} heads"
            )

    @property
    def tables(self) -> int:
        return (self.longest - 1) * self.heads

    @property
    def row(self) -> int:
        return self.width // self.tables

    @property
    def steps(self) -> int:
        """That the convolution looks back."""
        return (self.taps - 1) * self.longest

    def sizes(self, layer: int) -> list[int]:
        """Of each head's part: no two of the model's have the same."""
        first = self.layers.index(layer) * self.tables
        return list(_primes(self.least_rows, first + self.tables)[first:])

    def rows(self, layer: int) -> int:
        return -(-sum(self.sizes(layer)) // self.divisor) * self.divisor

    def factors(self, layer: int) -> list[int]:
        """Odd, of the token itself and of those before it: their products fit 64 bits."""
        most = max(1, ((1 << 63) - 1) // self.vocab_size // 2)
        seed = self.seed + _APART * self.layers.index(layer)
        return [2 * (_mixed(seed + _STEP * (place + 1)) % most) + 1 for place in range(self.longest)]


def has_ngrams(config: NgramConfig | None, layer: int) -> bool:
    return config is not None and layer in config.layers


def _mixed(value: int) -> int:
    """SplitMix64"""
    value = ((value & _MASK) + _STEP) & _MASK
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


@cache
def _primes(least: int, count: int) -> tuple[int, ...]:
    found = _primes_from(least)
    return tuple(next(found) for _ in range(count))


def _primes_from(least: int) -> Iterator[int]:
    number = max(least, 2)
    while True:
        if all(number % divisor for divisor in range(2, math.isqrt(number) + 1)):
            yield number
        number += 1
