"""One layer's parts by their sizes: attention, its rope, experts. Data, no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


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
    latent_size: int | None = None  # of the rows that routed experts work on, where not the hidden size
    shared_gate: bool = False  # the shared expert counts as much as a sigmoid of the token says
    biases: bool = False  # of the router and of each expert
    # alpha and limit of gpt-oss's clamped gate: (up + 1) * gate * sigmoid(alpha * gate)
    swiglu: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Of the first `dim` values of each head. `parameters` are config.json's, of its `rope_type`."""

    dim: int
    theta: float
    max_position: int
    interleaved: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)


def mscale(factor: float, scale: float) -> float:
    """How much YaRN enlarges what it stretches by `factor`."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The sparse-attention indexer of DeepSeek-V3.2 and GLM-5: its own small key cache and a top-k.

    Of an `interleaved` one, what it keeps of a token is a part of one product with its heads' weights.
    """

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
    """What a checkpoint calls the parts that every decoder has."""

    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    attention: str = "self_attn"
    recurrent: str = "linear_attn"
    mlp: str = "mlp"
    experts: str = ""  # the module of experts, where it is not called as other MLPs are
    shared: str = "shared_experts"
    head: str = "lm_head"


USUAL_NAMES = TensorNames()
