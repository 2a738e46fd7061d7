"""GigaChat 3.5's fields, which are those of SGLang's own config class: srt/configs/gigachat35.py."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig


class GigaChat35Config(PreTrainedConfig):
    model_type = "gigachat3_5"
    vocab_size: int = 128256
    hidden_size: int = 1280
    intermediate_size: int = 896
    moe_intermediate_size: int = 896
    num_hidden_layers: int = 12
    num_attention_heads: int = 16
    num_key_value_heads: int = 16
    hidden_act: str = "silu"
    max_position_embeddings: int = 4096
    initializer_range: float = 0.006
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    rope_theta: float = 100000.0
    rope_scaling: dict[str, Any] | None = None
    rope_interleave: bool = True
    attention_bias: bool = False
    tie_word_embeddings: bool = False
    q_lora_rank: int | None = 1536
    kv_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    v_head_dim: int = 128
    head_dim: int = 64
    n_routed_experts: int = 64
    n_shared_experts: int = 2
    num_experts_per_tok: int = 6
    moe_layer_freq: int = 1
    first_k_dense_replace: int = 1
    routed_scaling_factor: float = 2.5
    n_group: int = 1
    topk_group: int = 1
    topk_method: str = "noaux_tc"
    scoring_func: str = "sigmoid"
    norm_topk_prob: bool = True
    use_shared_expert_sigmoid: bool = False
    linear_attention_type: str = "Qwen3NextGatedDeltaNet"
    layer_types: list[str] | None = None
    full_attention_layers: list[int] | None = None
    linear_conv_kernel_dim: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_num_key_heads: int = 8
    linear_num_value_heads: int = 16
    linear_sigmoid_gate_scale: float = 2.0
    output_gate_type: str = "sigmoid"
    norm_type: str = "ZeroCenteredGatedNorm"
    layernorm_type: str = "pre_post"
    layernorm_gating_weight: float = 2.0
    gated_attention: bool = True
    use_mla_scaling_factor: bool = True
    swiglu_limit: float | None = None
    num_nextn_predict_layers: int = 0
    nextn_is_sparse: bool = False
