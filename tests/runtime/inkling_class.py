"""The config class that SGLang has for Inkling's text: its fields, and what leaving one out says."""

from __future__ import annotations

from transformers import PreTrainedConfig


class InklingModelConfig(PreTrainedConfig):
    model_type = "inkling_model"
    vocab_size: int = 201024
    unpadded_vocab_size: int | None = None
    padded_vocab_size: int | None = None
    hidden_size: int = 1536
    intermediate_size: int = 768
    dense_intermediate_size: int | None = None
    num_hidden_layers: int = 16
    num_attention_heads: int = 12
    num_key_value_heads: int = 4
    head_dim: int | None = None
    v_head_dim: int | None = None
    swa_num_attention_heads: int | None = None
    swa_num_key_value_heads: int | None = None
    swa_head_dim: int | None = None
    swa_v_head_dim: int | None = None
    d_rel: int = 16
    rel_extent: int = 1024
    local_layer_ids: list[int] | None = None
    sliding_window_size: int = 512
    mtp_local_layer_ids: list[int] | None = None
    mtp_local_extent: int | None = None
    mtp_swa_num_attention_heads: int | None = None
    mtp_swa_num_key_value_heads: int | None = None
    mtp_swa_head_dim: int | None = None
    rms_norm_eps: float = 1e-6
    hidden_act: str = "silu"
    q_bias: bool = False
    o_bias: bool = False
    use_embed_norm: bool = False
    use_sconv: bool = False
    sconv_kernel_size: int = 4
    chain_hidden_post_norm: bool = False
    dense_mlp_idx: int = 0
    n_routed_experts: int = 0
    n_shared_experts: int = 0
    num_experts_per_tok: int = 1
    route_scale: float = 1.0
    use_gate_bias: bool = False
    use_global_scale: bool = False
    norm_after_topk: bool = True
    gate_activation: str = "sigmoid"
    shared_expert_sink: bool = False
    shared_experts_size: int = 1
    inference_moe_w13_interleaved: bool = True
    log_scaling_n_floor: int | None = None
    log_scaling_alpha: float = 0.1
    logits_mup_width_multiplier: float | None = None
    enable_lm_head_output_fp32: bool = True
    final_logit_softcapping: float | None = None
    num_nextn_predict_layers: int = 8
    tie_word_embeddings: bool = False
