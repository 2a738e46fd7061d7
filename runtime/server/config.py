"""The shape of a model and of one rank's start. Data, no torch."""

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

SLIDING_SHARE = 0.8  # the default of --swa-full-tokens-ratio


@dataclass(frozen=True, slots=True)
class Vocabulary:
    size: int
    is_tied: bool = False  # the head is the embedding's table
    whole: bool = False  # on every rank: srt/models/gemma3_causal.py
    multiplier: float = 1.0  # of the embedding's output
    logit_cap: float | None = None


@dataclass(frozen=True, slots=True)
class Style:
    """A layer's style. `norms` are before each half, around each half (Gemma 3), or before the only half."""

    rms_eps: float = 1e-6
    norms: Literal["before", "sandwich", "alone"] = "before"
    gated: bool = True  # silu(gate) * up; without a gate, relu(up) squared
    activation: Literal["silu", "gelu_tanh"] = "silu"


@dataclass(frozen=True, slots=True)
class Traits:
    """Where SGLang's class of a family differs from other classes with the same layers."""

    routing: Literal["", "deepseek", "softmax"] = ""  # the routing that it passes to kernels
    of_deepseek: bool = False  # its layers are those of srt/models/deepseek_v2.py
    fuses_shared_of: int = 0  # with this number of routed experts, shared ones run as routed; -1: any
    splits_over_tp: bool = False  # its attention is split over the TP group, not the attention-TP group
    window_pool: bool = False  # its layers with a window have a pool of their own
    quantizes_experts_alone: bool = False
    # The layer that the draft's is like: the last, but with experts; the first; the last.
    draft: Literal["", "experts", "first", "last"] = ""
    plain_fp4_draft: bool = False  # ModelOpt's nvfp4 leaves the draft's layer plain, as in DeepSeek's
    names: TensorNames = USUAL_NAMES


@dataclass(frozen=True, slots=True)
class Gaps:
    """What is missing for a model: `obstacles` are unknown here, `uncomputed` parts are known by size."""

    obstacles: tuple[str, ...] = ()
    uncomputed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model's shape. `attention_kinds` names each layer's entry in `attention`, or is "recurrent" or
    "none". `layer_kinds` is "dense", "moe" or "none"."""

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
        """Return the first experts' module that is excluded from the quantization of experts, or None."""
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
        """Return the attention of layers without a window, if there are any."""
        return self.attention.get("full") or next(iter(self.attention.values()))

    def keeps_tokens(self, layer: int) -> bool:
        """Whether the layer keeps keys and values of every token."""
        return self.attention_kinds[layer] in self.attention

    def is_recurrent(self, layer: int) -> bool:
        """Whether the layer keeps a state of every request."""
        return self.attention_kinds[layer] == "recurrent"

    def kind_of(self, layer: int) -> tuple[object, ...]:
        """Return what decides a layer's size and speed: layers of the same kind run alike."""
        stored = self.quantized.excluded.below(self.layer_name(layer))
        return self.layer_kinds[layer], self.attention_kinds[layer], stored

    def layer_name(self, layer: int) -> str:
        return f"{self.names.layers}.{layer}"

    def block_name(self, layer: int) -> str:
        """Return the name of the module that holds this layer's experts and their router."""
        return f"{self.layer_name(layer)}.{self.names.mlp}"

    def experts_name(self, block: str) -> str:
        """Return the name of the module that holds this block's experts."""
        own = self.names.experts
        return f"{block.removesuffix('mlp') + own if own else block}.experts"

    def shared_name(self, block: str) -> str:
        """Return the name of the module that holds this block's shared experts."""
        name = "shared_expert" if self.moe is not None and self.moe.shared_gate else self.names.shared
        return f"{block}.{name}"

    def layer_attention(self, layer: int) -> AttentionConfig:
        """Return the attention of a layer. A layer without attention gets the main one."""
        return self.attention.get(self.attention_kinds[layer % self.num_layers], self.main_attention)


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """Speculative decoding by one more layer of the model itself, as EAGLE does."""

    num_steps: int = 3
    eagle_topk: int = 1
    num_draft_tokens: int = 4

    def __post_init__(self) -> None:
        check_flags(self, SPECULATIVE)


@dataclass(frozen=True, slots=True)
class Kernels:
    """The kernels that run, by SGLang's names of their backends."""

    attention: str = "triton"
    moe: str = "auto"
    a2a: str = "none"
    a2a_max_tokens: int | None = None  # of a rank, in its workspace; None: a chunk or a full decode batch
    fp4_gemm: str = ""
    fuses_shared_experts: bool = True
    sm_major: int = 9


@dataclass(frozen=True, slots=True)
class Cache:
    """How the KV cache stores tokens, and how many."""

    dtype: str = "auto"
    page_size: int = 1
    packs_latents: bool = True  # sparse attention stores fp8 with scales
    max_tokens: int | None = None  # of a rank's pool, at most
    sliding_share: float = SLIDING_SHARE  # of the tokens, in the pool of layers with a window


@dataclass(frozen=True, slots=True)
class Graphs:
    """The captured sizes: requests of decode graphs, tokens of prefill graphs."""

    decode: tuple[int, ...] = ()
    prefill: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The resolved settings of one rank's start."""

    dtype: str = "bfloat16"
    kernels: Kernels = Kernels()
    cache: Cache = Cache()
    graphs: Graphs = Graphs()
    prefill_tokens: int = 8192  # of one rank's prefill; without chunks, those of the longest one
    max_running_requests: int | None = None  # of the whole server; None: what the free memory allows
    mem_fraction_static: float = 0.85
    context_length: int | None = None  # None: the model's
    disable_autotune: bool = False
    autotune_cached: bool = False  # all tactics are: the dummy forward runs, but nothing is profiled
    head_over: HeadOver = "all ranks"
    speculative: SpeculativeConfig | None = None
    states: StateRules = STATE_RULES

    @property
    def width(self) -> int:
        """Tokens per request in a decode step."""
        return self.speculative.num_draft_tokens if self.speculative else 1
