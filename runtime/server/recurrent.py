"""Layers that keep a state of each request instead of keys and values of each token."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StateShape:
    """Of one layer and one request: the inputs that the convolution still sees, and what is remembered."""

    conv: tuple[int, int]  # channels, steps
    recurrent: tuple[int, int, int]  # heads, values, keys

    def nbytes(self, conv_bytes: int, recurrent_bytes: int) -> int:
        channels, steps = self.conv
        heads, values, keys = self.recurrent
        return channels * steps * conv_bytes + heads * values * keys * recurrent_bytes


@dataclass(frozen=True, slots=True)
class GatedDeltaConfig:
    """Each token forgets a part of the state, then corrects what it answers to the token's key.

    Rows of its projections are those of a key head after another.
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int

    def __post_init__(self) -> None:
        _check_groups("linear value heads", self.num_value_heads, "key heads", self.num_key_heads)

    @property
    def key_dim(self) -> int:
        return self.num_key_heads * self.key_head_dim

    @property
    def value_dim(self) -> int:
        return self.num_value_heads * self.value_head_dim

    def state_shape(self, ranks: int) -> StateShape:
        for what, heads in (("key", self.num_key_heads), ("value", self.num_value_heads)):
            _check_split(f"the number of linear {what} heads", heads, ranks)
        channels = (2 * self.key_dim + self.value_dim) // ranks
        return StateShape(
            (channels, self.conv_kernel - 1),
            (self.num_value_heads // ranks, self.value_head_dim, self.key_head_dim),
        )


@dataclass(frozen=True, slots=True)
class Mamba2Config:
    """Each token forgets a part of the state, as its step says, and adds its own value at its key.

    SGLang calls keys, queries and the widths of both B, C and the state's size.
    """

    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    conv_kernel: int
    conv_bias: bool
    bias: bool
    least_step: float  # transformers' prefill keeps to it, its decode and SGLang do not

    def __post_init__(self) -> None:
        _check_groups("Mamba heads", self.num_heads, "groups", self.num_groups)

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_dim

    def groups_per_rank(self, ranks: int) -> int:
        if self.num_groups == 1:
            return 1  # every rank has it
        _check_split("the number of Mamba groups", self.num_groups, ranks)
        return self.num_groups // ranks

    def state_shape(self, ranks: int) -> StateShape:
        _check_split("the number of Mamba heads", self.num_heads, ranks)
        channels = self.inner_size // ranks + 2 * self.groups_per_rank(ranks) * self.state_size
        return StateShape(
            (channels, self.conv_kernel - 1), (self.num_heads // ranks, self.head_dim, self.state_size)
        )


@dataclass(frozen=True, slots=True)
class StateRules:
    """How many states a server keeps: a request's own, and those of prefixes beside it."""

    slots_each: int = 1  # that a request takes
    keeps_prefixes: bool = True
    conv_dtype: str = "bfloat16"
    recurrent_dtype: str = "float32"


STATE_RULES = StateRules()


def _check_groups(what: str, count: int, whose: str, groups: int) -> None:
    if count % groups:
        raise ConfigError(f"config.json: {count} {what} are not evenly those of {groups} {whose}")


def _check_split(what: str, count: int, ranks: int) -> None:
    if count % ranks:
        raise ConfigError(f"{what} {count} cannot be split over {ranks} ranks: choose sizes that divide it")


RecurrentConfig = GatedDeltaConfig | Mamba2Config
