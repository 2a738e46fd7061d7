"""The parts of one layer by their sizes: attention, its rope, recurrences, experts. Data, no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.server.errors import ConfigError


@dataclass(frozen=True, slots=True)
class MoEConfig:
    num_experts: int
    top_k: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    scoring: Literal["softmax", "sigmoid"] = "softmax"
    renormalize: bool = True
    correction_bias: bool = False
    num_groups: int = 1
    top_k_groups: int = 1
    routed_scaling_factor: float = 1.0
    router_in_fp32: bool = False
    latent_size: int | None = None  # the width of the routed experts' rows, if not the hidden size
    shared_gate: bool = False  # a sigmoid of the token weighs the shared expert's output
    biases: bool = False  # of the router and of each expert
    # alpha and limit of gpt-oss's clamped gate: (up + 1) * gate * sigmoid(alpha * gate)
    swiglu: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """The rope of each head's first `dim` values. `parameters` are config.json's, for its `rope_type`."""

    dim: int
    theta: float
    max_position: int
    interleaved: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


def mscale(factor: float, scale: float) -> float:
    """Return the factor by which YaRN enlarges what it stretches by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The sparse-attention indexer of DeepSeek-V3.2 and GLM-5, with a small key cache of its own and a top-k.

    In an `interleaved` indexer one product gives both the token's key and the weights of the heads.
    """

    num_heads: int
    head_dim: int
    top_k: int
    interleaved: bool = True


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """One kind of attention. In latent attention `head_dim` is the size of a query's head."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: RopeConfig | None
    scale: float
    window: int | None = None
    bias: bool = False
    output_bias: bool = False
    sinks: bool = False
    qk_norm: Literal["none", "head", "all"] = "none"  # of each head, or of all as one
    output_gate: bool = False  # each query head has a gate whose sigmoid scales its output


@dataclass(frozen=True, slots=True)
class MLAConfig:
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: IndexerConfig | None

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_dim(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True)
class TensorNames:
    """The names in a checkpoint of the parts that every decoder has."""

    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    attention: str = "self_attn"
    recurrent: str = "linear_attn"
    mlp: str = "mlp"
    experts: str = ""  # the module of experts, if its name differs from that of MLPs
    shared: str = "shared_experts"
    head: str = "lm_head"


USUAL_NAMES = TensorNames()


@dataclass(frozen=True, slots=True)
class StateShape:
    """One layer's state of a request: the inputs that the convolution still needs, and the recurrent part."""

    conv: tuple[int, int]  # channels, steps
    recurrent: tuple[int, int, int]  # heads, values, keys

    def nbytes(self, conv_bytes: int, recurrent_bytes: int) -> int:
        channels, steps = self.conv
        heads, values, keys = self.recurrent
        return channels * steps * conv_bytes + heads * values * keys * recurrent_bytes


@dataclass(frozen=True, slots=True)
class GatedDeltaConfig:
    """A gated delta net: each token decays the state, then corrects the state's output for the token's key.

    The rows of its projections are grouped by key head.
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
    """A Mamba-2 mixer: each token decays the state by its step, and adds its own value at its key.

    SGLang calls the keys B, the queries C, and the width of both the state's size.
    """

    num_heads: int
    head_dim: int
    num_groups: int
    state_size: int
    conv_kernel: int
    conv_bias: bool
    bias: bool
    least_step: float  # used by transformers' prefill, not by its decode nor SGLang

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
    """How many states a server keeps: those of running requests, and those of cached prefixes."""

    slots_each: int = 1  # of one request
    keeps_prefixes: bool = True
    conv_dtype: str = "bfloat16"
    recurrent_dtype: str = "float32"


STATE_RULES = StateRules()


def _check_groups(what: str, count: int, whose: str, groups: int) -> None:
    if count % groups:
        raise ConfigError(f"config.json: {count} {what} cannot be divided evenly among {groups} {whose}")


def _check_split(what: str, count: int, ranks: int) -> None:
    if count % ranks:
        raise ConfigError(f"{what} {count} cannot be split over {ranks} ranks: choose sizes that divide it")


RecurrentConfig = GatedDeltaConfig | Mamba2Config
