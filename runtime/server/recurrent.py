"""Layers that keep a state a request instead of keys and values a token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from runtime.server.errors import ConfigError
from runtime.server.layer_config import RopeConfig
from runtime.server.selective_scan import SelectiveScanConfig
from runtime.server.state_shape import StateShape, check_split


@dataclass(frozen=True, slots=True)
class GatedDeltaConfig:
    """Each token forgets a part of the state, then corrects what it answers to the token's key.

    `projections` are rows of a key head after another ("heads"), or of a matrix after another ("matrices").
    """

    num_key_heads: int
    num_value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    projections: Literal["heads", "matrices"]
    plain_gate: bool = False  # a sigmoid opens what is answered, and no silu
    norm_scale: float = 1.0  # of what is answered, and normed before it is opened
    centred_norm: bool = False  # by weights that are told less one

    def __post_init__(self) -> None:
        _check_groups("linear value heads", self.num_value_heads, "key heads", self.num_key_heads)

    @property
    def chunk(self) -> int:
        return 64

    @property
    def key_dim(self) -> int:
        return self.num_key_heads * self.key_head_dim

    @property
    def value_dim(self) -> int:
        return self.num_value_heads * self.value_head_dim

    def state_shape(self, ranks: int) -> StateShape:
        for what, heads in (("key", self.num_key_heads), ("value", self.num_value_heads)):
            check_split(f"the number of linear {what} heads", heads, ranks)
        channels = (2 * self.key_dim + self.value_dim) // ranks
        return StateShape(
            (channels, self.conv_kernel - 1),
            (self.num_value_heads // ranks, self.value_head_dim, self.key_head_dim),
        )


@dataclass(frozen=True, slots=True)
class DynamicDeltaConfig:
    """A gated delta rule whose values alone are convolved: by taps that each token makes of itself, through a
    row of `generator_size`."""

    num_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    generator_size: int
    norm_eps: float  # of what is answered

    @property
    def key_dim(self) -> int:
        return self.num_heads * self.key_head_dim

    @property
    def value_dim(self) -> int:
        return self.num_heads * self.value_head_dim

    def state_shape(self, ranks: int) -> StateShape:
        """With room for queries and keys, as Mamba's: srt/configs/jet_nemotron.py."""
        check_split("the number of linear heads", self.num_heads, ranks)
        channels = (2 * self.key_dim + self.value_dim) // ranks
        return StateShape(
            (channels, self.conv_kernel - 1),
            (self.num_heads // ranks, self.value_head_dim, self.key_head_dim),
        )


@dataclass(frozen=True, slots=True)
class KimiDeltaConfig:
    """A delta rule whose state forgets by channels of a key, each its own part.

    A channel forgets as much as a softplus says, or, with a `lower_bound` of its logarithm, a sigmoid's
    share of that. The gates are projected through a head's width, or at once; with a `whole_gate`, the one
    that opens what is answered alone.
    """

    num_heads: int
    head_dim: int
    conv_kernel: int
    narrow_gates: bool = True
    whole_gate: bool = False
    norm_eps: float | None = None  # of what is answered, where it is not the model's
    lower_bound: float | None = None

    @property
    def chunk(self) -> int:
        return 64

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_dim

    def state_shape(self, ranks: int) -> StateShape:
        check_split("the number of linear heads", self.num_heads, ranks)
        heads = self.num_heads // ranks
        return StateShape(
            (3 * heads * self.head_dim, self.conv_kernel - 1), (heads, self.head_dim, self.head_dim)
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
    chunk: int
    is_normed: bool = True  # what the gate opens, before it is projected
    scales: tuple[float, ...] = ()  # of what is projected: gates, values, keys, queries and steps

    def __post_init__(self) -> None:
        _check_groups("Mamba heads", self.num_heads, "groups", self.num_groups)

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_dim

    def groups_per_rank(self, ranks: int) -> int:
        if self.num_groups == 1:
            return 1  # every rank has it
        check_split("the number of Mamba groups", self.num_groups, ranks)
        return self.num_groups // ranks

    def state_shape(self, ranks: int) -> StateShape:
        check_split("the number of Mamba heads", self.num_heads, ranks)
        channels = self.inner_size // ranks + 2 * self.groups_per_rank(ranks) * self.state_size
        return StateShape(
            (channels, self.conv_kernel - 1), (self.num_heads // ranks, self.head_dim, self.state_size)
        )


@dataclass(frozen=True, slots=True)
class ShortConvConfig:
    """A gated convolution of each channel, which remembers nothing but its inputs."""

    channels: int
    conv_kernel: int
    bias: bool

    def state_shape(self, ranks: int) -> StateShape:
        check_split("the number of convolved channels", self.channels, ranks)
        return StateShape((self.channels // ranks, self.conv_kernel - 1), (1, self.channels, 0))


@dataclass(frozen=True, slots=True)
class TwiceConvolvedConfig:
    """Queries and keys that two convolutions mix, of each channel and then of each head; half of a value is
    of the token before, whose whole row is kept."""

    heads: int  # of queries and of keys
    head_dim: int
    row: int
    kernels: tuple[int, int]

    @property
    def steps(self) -> int:
        return sum(self.kernels) - 2

    def state_shape(self, ranks: int) -> StateShape:
        check_split("the number of convolved heads", self.heads, ranks)
        return StateShape((self.heads * self.head_dim // ranks, self.steps), (1, 1, 0), self.row)


@dataclass(frozen=True, slots=True)
class AddedConvolutionsConfig:
    """Of keys and of values, and of what either half of a layer answers, each added to what it is of. A
    layer's state has room for the keys and values of every kind of layer: `kv` are their heads and widths."""

    kv: tuple[tuple[str, int, int], ...]
    row: int
    conv_kernel: int

    def places(self, ranks: int) -> dict[str, slice]:
        """The channels of each in a state, by kinds of layers and halves."""
        found, start = {}, 0
        for name, width in self._widths(ranks):
            found[name] = slice(start, start + width)
            start += width
        return found

    def _widths(self, ranks: int) -> Iterator[tuple[str, int]]:
        for kind, heads, width in self.kv:
            for part in ("keys", "values"):
                yield f"{kind} {part}", max(1, heads // ranks) * width
        yield "attention", self.row
        yield "mlp", self.row

    def state_shape(self, ranks: int) -> StateShape:
        channels = sum(width for _, width in self._widths(ranks))
        return StateShape((channels, self.conv_kernel - 1), (1, 1, 0))


@dataclass(frozen=True, slots=True)
class LightningConfig:
    """Linear attention whose state forgets as much a token as the head and the depth of the layer say.

    What it answers is normed, in `norm_groups` or as one of all ranks, before a gate opens it.
    """

    num_heads: int
    head_dim: int
    norm_groups: int
    normed_heads: bool  # of queries and keys
    rope: RopeConfig | None
    num_layers: int  # of the whole model: the last one forgets nearly nothing
    by_depth: bool = True
    normed: Literal["in groups", "as one", "not"] = "in groups"
    gated: bool = True

    def __post_init__(self) -> None:
        if self.inner_size % self.norm_groups:
            raise ConfigError(
                f"config.json: {self.inner_size} channels are not evenly those of {self.norm_groups} groups"
            )

    @property
    def chunk(self) -> int:
        return 32

    @property
    def inner_size(self) -> int:
        return self.num_heads * self.head_dim

    def state_shape(self, ranks: int) -> StateShape:
        check_split("the number of linear heads", self.num_heads, ranks)
        if self.normed == "in groups":
            check_split("the number of norm's groups", self.norm_groups, ranks)
        return StateShape((0, 0), (self.num_heads // ranks, self.head_dim, self.head_dim))

    def slopes(self, layer: int) -> list[float]:
        """By how much a head's state shrinks at each token, as a logarithm."""
        depth = 1 - layer / max(self.num_layers - 1, 1) + 1e-5 if self.by_depth else 1
        return [slope * depth for slope in _slopes(self.num_heads)]


@dataclass(frozen=True, slots=True)
class StateRules:
    """How many states a server keeps: a request's own, and those of prefixes beside it."""

    slots: int | None = None  # of the whole server; None: what memory allows
    share: float = 0.9  # of the states' memory in that of the tokens
    slots_each: int = 1  # that a request takes
    tracked: int = 0  # beside a request's own, where it ends as it likes
    keeps_prefixes: bool = True
    extra_buffer: bool = False  # of those, so that they may end anywhere
    drafts: bool = True  # there is room for the state that a verify leaves of each drafted token
    verifies: bool = True  # ... which it leaves
    conv_dtype: str = "bfloat16"
    recurrent_dtype: str = "float32"


STATE_RULES = StateRules()


def _slopes(heads: int) -> list[float]:
    """Those of ALiBi: powers of one ratio, between which other counts of heads take every second."""
    power = 1 << heads.bit_length() - 1
    of_power = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    return of_power if power == heads else of_power + _slopes(2 * power)[0::2][: heads - power]


def _check_groups(what: str, count: int, whose: str, groups: int) -> None:
    if count % groups:
        raise ConfigError(f"config.json: {count} {what} are not evenly those of {groups} {whose}")


RecurrentConfig = (
    AddedConvolutionsConfig
    | DynamicDeltaConfig
    | GatedDeltaConfig
    | KimiDeltaConfig
    | LightningConfig
    | Mamba2Config
    | SelectiveScanConfig
    | ShortConvConfig
    | TwiceConvolvedConfig
)
