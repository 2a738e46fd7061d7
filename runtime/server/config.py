"""The shape of a model and of one rank's start: data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runtime.server.bounds import SERVER, check_flags, check_model
from runtime.server.excluded import Excluded
from runtime.server.formats.assigned import UNQUANTIZED, Quantized
from runtime.server.layer_config import (
    NO_MULTIPLIERS,
    AttentionConfig,
    MLAConfig,
    MoEConfig,
    Multipliers,
    NormStyle,
)
from runtime.server.parallel_config import HeadOver
from runtime.server.recurrent import STATE_RULES, RecurrentConfig, StateRules
from runtime.server.speculative_config import SpeculativeConfig
from runtime.server.tensor_names import EXPERTS_IN, USUAL, TensorNames

SLIDING_SHARE = 0.8  # --swa-full-tokens-ratio, where it does not say


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Of each layer: the entry of `attention` in `attention_kinds`, or "recurrent", or "none"; and "dense",
    "moe" or "none" in `layer_kinds`."""

    model_type: str
    hidden_size: int
    num_layers: int
    intermediate_size: int
    vocab_size: int
    max_position: int
    attention: Mapping[str, AttentionConfig] = field(default_factory=dict)
    attention_kinds: tuple[str, ...] = ()
    layer_kinds: tuple[str, ...] = ()
    rms_eps: float = 1e-6
    tie_word_embeddings: bool = False
    embeds_whole: bool = False  # on every rank: srt/models/gemma3_causal.py
    norms: NormStyle = "before"
    centred_norms: bool = False  # weights are told less one
    gated_mlps: bool = True  # silu(gate) * up; without a gate, relu(up) squared
    activation: Literal["silu", "gelu_tanh"] = "silu"
    multipliers: Multipliers = NO_MULTIPLIERS
    checkpoint_quantization: str | None = None
    quantization_block: tuple[int, int] | None = None
    quantized: Quantized = UNQUANTIZED
    dtype: str = "bfloat16"
    moe: MoEConfig | None = None
    mla: MLAConfig | None = None
    recurrent: RecurrentConfig | None = None
    names: TensorNames = USUAL
    obstacles: tuple[str, ...] = ()  # what of it this runtime does not know
    uncomputed: tuple[str, ...] = ()  # of what is known, its sizes too, what it does not compute

    def __post_init__(self) -> None:
        check_model(self, self.moe, self.mla, self.mla and self.mla.indexer, self.recurrent)

    @property
    def is_mla(self) -> bool:
        return self.mla is not None

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

    def layer_name(self, layer: int) -> str:
        return f"{self.names.layers}.{layer}"

    @property
    def excluded(self) -> Excluded:
        """What its checkpoint keeps plain."""
        return self.quantized.excluded

    def experts_name(self, mlp: str) -> str:
        """The module that holds the experts of this one."""
        own = EXPERTS_IN.get(self.model_type)
        return f"{mlp if own is None else mlp.removesuffix('.mlp') + own}.experts"

    def block_name(self, layer: int) -> str:
        """The module of the experts of this layer and of their router."""
        return f"{self.layer_name(layer)}.{self.names.mlp}"

    def shared_name(self, mlp: str) -> str:
        """The module of the shared experts of this one."""
        name = "shared_expert" if self.moe is not None and self.moe.shared_gate else self.names.shared
        return f"{mlp}.{name}"

    def layer_attention(self, layer: int) -> AttentionConfig:
        """Of a layer that keeps tokens, or has a place for them."""
        return self.attention.get(self.attention_kinds[layer % self.num_layers], self.main_attention)


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """What a start goes by, resolved: `Server.runtime` is the one that a server would come to."""

    dtype: str = "bfloat16"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    page_size: int = 1
    attention_backend: str = "triton"
    prefill_attention_backend: str = ""  # where it is another
    packs_latents: bool = True  # of sparse attention, in fp8, with scales
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    fp4_gemm_backend: str = ""
    fp8_gemm_backend: str = "auto"
    a2a_max_tokens: int | None = None  # of a rank, in its workspace; None: a chunk or a full decode batch
    prefill_tokens: int = 8192  # of one rank's prefill; without chunks, those of the longest one
    max_running_requests: int | None = None  # of the whole server; None: by the memory that is left
    max_total_tokens: int | None = None  # of a rank's pool, at most
    sliding_share: float = SLIDING_SHARE  # of its tokens, in the pool of layers behind a window
    mem_fraction_static: float = 0.85
    context_length: int | None = None  # None: the model's
    positions: int = 0  # that tables of angles have at least
    decode_graphs: tuple[int, ...] = ()
    prefill_graphs: tuple[int, ...] = ()
    is_pd_decode: bool = False
    arriving: int | None = 0  # requests that have a row beside those that run
    disable_autotune: bool = False
    autotune_cached: bool = False  # every tactic: the dummy forward still runs, but nothing is profiled
    fuses_shared_experts: bool = True
    whole_dense_mlps: bool = False
    tells_dense_split: bool = False  # then rows are scattered among attention's ranks
    gathers_nvfp4: bool = False
    disable_custom_all_reduce: bool = False
    head_over: HeadOver = "all ranks"
    speculative: SpeculativeConfig | None = None
    states: StateRules = STATE_RULES
    sm_major: int = 9

    def __post_init__(self) -> None:
        check_flags(self, SERVER)

    @property
    def width(self) -> int:
        """Tokens that a decode step brings a request."""
        return self.speculative.num_draft_tokens if self.speculative else 1
