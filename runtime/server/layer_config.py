"""One layer's parts by their sizes: attention, its rope, experts. Data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.server.bounds import check_model

# Where a layer norms: before each half; at either end of it (Gemma 3); before the one half that it is.
NormStyle = Literal["before", "sandwich", "alone"]


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
    router_bias: bool = False
    router_in_fp32: bool = False
    latent_size: int | None = None  # of the rows that routed experts work on, where not the hidden size
    shared_gate: bool = False  # the shared expert counts as much as a sigmoid of the token says
    expert_bias: bool = False
    # gpt-oss: clamped gate, (up + 1) * gate * sigmoid(alpha * gate), softmax over the selected experts only
    swiglu_alpha: float | None = None
    swiglu_limit: float | None = None


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Of the first `dim` values of each head. `parameters` are config.json's, of its `rope_type`."""

    dim: int
    theta: float
    max_position: int
    interleaved: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The sparse-attention indexer of DeepSeek-V3.2 and GLM-5: its own small key cache and a top-k."""

    num_heads: int
    head_dim: int
    top_k: int
    interleaved: bool = True


@dataclass(frozen=True, slots=True)
class AttentionConfig:
    """One kind of attention. In latent attention `head_dim` is a query's."""

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
    output_gate: bool = False  # a query head brings the sigmoid that its answer is multiplied by

    def __post_init__(self) -> None:
        check_model(self)


@dataclass(frozen=True, slots=True)
class MLAConfig:
    q_lora_rank: int | None
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
class Multipliers:
    """Of what the embedding gives, and the cap of logits."""

    embedding: float = 1.0
    logit_cap: float | None = None


NO_MULTIPLIERS = Multipliers()
