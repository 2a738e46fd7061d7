"""The shape of a model and of one rank's start: data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runtime.server.bounds import SPECULATIVE, check_flags
from runtime.server.layer_config import (
    STATE_RULES,
    USUAL_NAMES,
    AttentionConfig,
    MLAConfig,
    MoEConfig,
    RecurrentConfig,
    StateRules,
    TensorNames,
)
from runtime.server.parallel import HeadOver
from runtime.server.quantized import UNQUANTIZED, Quantized

SLIDING_SHARE = 0.8  # --swa-full-tokens-ratio, where it does not say


@dataclass(frozen=True, slots=True)
class Vocabulary:
    size: int
    is_tied: bool = False  # the head is the embedding's table
    whole: bool = False  # on every rank: srt/models/gemma3_causal.py
    multiplier: float = 1.0  # of what the embedding gives
    logit_cap: float | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """`norms`: before each half of a layer; at either end of it (Gemma 3); before the one half that it is."""

    rms_eps: float = 1e-6
    norms: Literal["before", "sandwich", "alone"] = "before"
    centred: bool = False  # weights of norms are told less one
    gated: bool = True  # silu(gate) * up; without a gate, relu(up) squared
    activation: Literal["silu", "gelu_tanh"] = "silu"


@dataclass(frozen=True, slots=True)
class Traits:
    """What SGLang's class of a family does otherwise than others with such layers."""

    routing: Literal["", "deepseek", "softmax"] = ""  # that it names to kernels which route
    of_deepseek: bool = False  # its layers are those of srt/models/deepseek_v2.py
    fuses_shared_of: int = 0  # shared experts run as routed ones beside so many of these; -1: any number
    splits_over_tp: bool = False  # its attention asks for TP's ranks, not for attention's
    window_pool: bool = False  # its layers behind a window have a pool of their own
    quantizes_experts_alone: bool = False
    # Which of its layers the one that drafts is like: the last, made one of experts; the first; the last.
    draft: Literal["", "experts", "first", "last"] = ""
    plain_fp4_draft: bool = False  # ModelOpt's nvfp4 leaves that layer plain, as of DeepSeek's
    names: TensorNames = USUAL_NAMES


@dataclass(frozen=True, slots=True)
class Gaps:
    """What of a model this runtime does not know; and, of what is known with its sizes, does not compute."""

    obstacles: tuple[str, ...] = ()
    uncomputed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Of each layer: the entry of `attention` in `attention_kinds`, or "recurrent", or "none"; and "dense",
    "moe" or "none" in `layer_kinds`."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    max_position: int
    vocabulary: Vocabulary
    attention: Mapping[str, AttentionConfig] = field(default_factory=dict)
    attention_kinds: tuple[str, ...] = ()
    layer_kinds: tuple[str, ...] = ()
    style: Style = Style()
    quantized: Quantized = UNQUANTIZED
    moe: MoEConfig | None = None
    mla: MLAConfig | None = None
    recurrent: RecurrentConfig | None = None
    traits: Traits = Traits()
    gaps: Gaps = Gaps()

    @property
    def num_layers(self) -> int:
        return len(self.layer_kinds)

    @property
    def names(self) -> TensorNames:
        return self.traits.names

    @property
    def plain_experts(self) -> str | None:
        """The first that are excluded from a quantization of experts."""
        if self.quantized.experts is None:
            return None
        blocks = (self.block_name(layer) for layer, kind in enumerate(self.layer_kinds) if kind == "moe")
        names = map(self.experts_name, blocks)
        return next((name for name in names if self.quantized.of_experts(name) is None), None)

    @property
    def num_moe_layers(self) -> int:
        return self.layer_kinds.count("moe")

    @property
    def main_attention(self) -> AttentionConfig:
        """Of the layers that see everything, where there are any."""
        return self.attention.get("full") or next(iter(self.attention.values()))

    def keeps_tokens(self, layer: int) -> bool:
        """Whether it has keys and values of every token."""
        return self.attention_kinds[layer] in self.attention

    def is_recurrent(self, layer: int) -> bool:
        """Whether it has a state of every request."""
        return self.attention_kinds[layer] == "recurrent"

    def kind_of(self, layer: int) -> tuple[object, ...]:
        """Layers of one kind run alike and are as large."""
        stored = self.quantized.excluded.below(self.layer_name(layer))
        return self.layer_kinds[layer], self.attention_kinds[layer], stored

    def layer_name(self, layer: int) -> str:
        return f"{self.names.layers}.{layer}"

    def block_name(self, layer: int) -> str:
        """The module of the experts of this layer and of their router."""
        return f"{self.layer_name(layer)}.{self.names.mlp}"

    def experts_name(self, block: str) -> str:
        """The module that holds the experts of this one."""
        own = self.names.experts
        return f"{block.removesuffix('mlp') + own if own else block}.experts"

    def shared_name(self, block: str) -> str:
        """The module of the shared experts of this one."""
        name = "shared_expert" if self.moe is not None and self.moe.shared_gate else self.names.shared
        return f"{block}.{name}"

    def layer_attention(self, layer: int) -> AttentionConfig:
        """Of a layer that keeps tokens, or has a place for them."""
        return self.attention.get(self.attention_kinds[layer % self.num_layers], self.main_attention)


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """By one more layer of the model itself, as EAGLE does."""

    num_steps: int = 3
    eagle_topk: int = 1
    num_draft_tokens: int = 4

    def __post_init__(self) -> None:
        check_flags(self, SPECULATIVE)


@dataclass(frozen=True, slots=True)
class Kernels:
    """Which run, by SGLang's names for their backends."""

    attention: str = "triton"
    moe: str = "auto"
    a2a: str = "none"
    a2a_max_tokens: int | None = None  # of a rank, in its workspace; None: a chunk or a full decode batch
    fp4_gemm: str = ""
    fuses_shared_experts: bool = True
    sm_major: int = 9


@dataclass(frozen=True, slots=True)
class Cache:
    """How keys and values of tokens are kept, and of how many."""

    dtype: str = "auto"
    page_size: int = 1
    packs_latents: bool = True  # of sparse attention, in fp8, with scales
    max_tokens: int | None = None  # of a rank's pool, at most
    sliding_share: float = SLIDING_SHARE  # of its tokens, in the pool of layers behind a window


@dataclass(frozen=True, slots=True)
class Graphs:
    """Requests of decode graphs, tokens of prefill graphs."""

    decode: tuple[int, ...] = ()
    prefill: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What a start goes by, resolved."""

    dtype: str = "bfloat16"
    kernels: Kernels = Kernels()
    cache: Cache = Cache()
    graphs: Graphs = Graphs()
    prefill_tokens: int = 8192  # of one rank's prefill; without chunks, those of the longest one
    max_running_requests: int | None = None  # of the whole server; None: by the memory that is left
    mem_fraction_static: float = 0.85
    context_length: int | None = None  # None: the model's
    disable_autotune: bool = False
    autotune_cached: bool = False  # every tactic: the dummy forward still runs, but nothing is profiled
    head_over: HeadOver = "all ranks"
    speculative: SpeculativeConfig | None = None
    states: StateRules = STATE_RULES

    @property
    def width(self) -> int:
        """Tokens that a decode step brings a request."""
        return self.speculative.num_draft_tokens if self.speculative else 1
