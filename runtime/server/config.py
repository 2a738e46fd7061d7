"""The shape of a model, of its parallel layout and of its server flags: data, no torch.

`ModelConfig.from_hf` reads the `config.json` of a checkpoint (both the older flat RoPE fields and
`rope_parameters`), so a preset and a real folder go through the same parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from runtime.server.errors import ConfigError

LayerKind = Literal["dense", "moe"]
AttentionKind = Literal["full", "sliding"]


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
    expert_bias: bool = False
    # gpt-oss: clamped gate, (up + 1) * gate * sigmoid(alpha * gate), softmax over the selected experts only
    swiglu_alpha: float | None = None
    swiglu_limit: float | None = None


@dataclass(frozen=True, slots=True)
class IndexerConfig:
    """The sparse-attention indexer of DeepSeek-V3.2 and GLM-5: its own small key cache and a top-k."""

    num_heads: int
    head_dim: int
    top_k: int


@dataclass(frozen=True, slots=True)
class MLAConfig:
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    indexer: IndexerConfig | None = None

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def cache_dim(self) -> int:
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True)
class ModelConfig:
    config_class: str
    model_type: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position: int
    rms_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_parameters: Mapping[str, Any] = field(default_factory=dict)
    rope_interleave: bool = False
    tie_word_embeddings: bool = False
    qk_norm: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    attention_sinks: bool = False
    sliding_window: int | None = None
    layer_kinds: tuple[LayerKind, ...] = ()
    attention_kinds: tuple[AttentionKind, ...] = ()
    checkpoint_quantization: str | None = None
    quantization_block: tuple[int, int] | None = None
    dtype: str = "bfloat16"
    moe: MoEConfig | None = None
    mla: MLAConfig | None = None

    @property
    def is_mla(self) -> bool:
        return self.mla is not None

    @property
    def num_moe_layers(self) -> int:
        return self.layer_kinds.count("moe")

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> ModelConfig:
        from runtime.server.hf_config import parse

        return parse(hf)


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """SGLang's sizes. `dp` under DP attention divides `tp`; without it, it counts replicas of the server."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    enable_dp_attention: bool = False
    nnodes: int = 1
    node_rank: int = 0

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep", "nnodes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"--{name} is {getattr(self, name)}: it must be at least 1")
        if self.tp % self.ep:
            raise ConfigError(
                f"--ep {self.ep} does not divide --tp {self.tp}: experts are spread over TP ranks"
            )
        if self.enable_dp_attention and self.tp % self.dp:
            raise ConfigError(
                f"--dp {self.dp} does not divide --tp {self.tp}: with --enable-dp-attention each DP group "
                "holds tp/dp ranks; pass --no-enable-dp-attention for separate replicas"
            )
        if self.world_size % self.nnodes:
            raise ConfigError(f"--nnodes {self.nnodes} does not divide tp x pp = {self.world_size} ranks")
        if not 0 <= self.node_rank < self.nnodes:
            raise ConfigError(f"--node-rank {self.node_rank} is not in 0..{self.nnodes - 1}")

    @property
    def world_size(self) -> int:
        return self.tp * self.pp

    @property
    def attn_dp(self) -> int:
        return self.dp if self.enable_dp_attention else 1

    @property
    def attn_tp(self) -> int:
        return self.tp // self.attn_dp

    @property
    def moe_ep(self) -> int:
        return self.ep

    @property
    def moe_tp(self) -> int:
        return self.tp // self.ep


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    algorithm: Literal["EAGLE", "EAGLE3", "NEXTN", "FROZEN_KV_MTP"]
    num_steps: int = 3
    eagle_topk: int = 1
    num_draft_tokens: int = 4
    multi_layer: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The server flags that decide a start. `None` means "resolved as SGLang would": see `sizing`."""

    dtype: str = "bfloat16"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    page_size: int = 1
    attention_backend: str = "triton"
    moe_runner_backend: str = "auto"
    moe_a2a_backend: str = "none"
    # Tokens a rank that the all-to-all workspace holds; None: a chunk or a full decode batch.
    a2a_max_tokens: int | None = None
    chunked_prefill_size: int | None = None
    max_running_requests: int | None = None
    mem_fraction_static: float | None = None
    context_length: int | None = None
    cuda_graph_max_bs: int | None = None
    disable_cuda_graph: bool = False
    disable_prefill_graph: bool = False
    disable_autotune: bool = False
    # Every tactic is in the cache: the dummy forward still runs, but nothing is profiled.
    autotune_cached: bool = False
    autotune_extend: bool = False
    # FlashInfer's default up to SGLang 0.5.17; later SGLANG_FLASHINFER_MOE_FUSED_FINALIZE, off when unset.
    fused_finalize: bool = False
    speculative: SpeculativeConfig | None = None
    # The call's arguments and the dummy batch follow the SGLang version of the target.
    sglang_version: str = "0.5.23"
