"""dots.note's fields, which are those of SGLang's own config class: srt/configs/dots3.py."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig


class Dots3Config(PreTrainedConfig):
    model_type = "dots3_note_text"
    vocab_size: int = 152064
    hidden_size: int = 2560
    hidden_act: str = "silu"
    intermediate_size: int = 7168
    num_hidden_layers: int = 30
    max_position_embeddings: int = 8192
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-5
    use_cache: bool = True
    pretraining_tp: int = 1
    pad_token_id: int | None = None
    bos_token_id: int | None = 151643
    eos_token_id: int | None = 151645
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    apply_mla_qkv_lora_rescale: bool = True
    attention_gate_type: str = "headwise"
    kv_lora_rank: int = 512
    q_lora_rank: int = 512
    qk_nope_head_dim: int = 128
    qk_rope_head_dim: int = 64
    num_attention_heads: int = 64
    num_key_value_heads: int = 64
    v_head_dim: int = 128
    num_nextn_predict_layers: int = 1
    layer_types: list[str] | None = None
    sliding_window_size: int = 512
    swa_attention_gate_type: str = "headwise"
    swa_q_lora_rank: int = 512
    swa_kv_lora_rank: int = 512
    swa_qk_nope_head_dim: int = 128
    swa_qk_rope_head_dim: int = 64
    swa_rope_theta: float | None = None
    swa_num_attention_heads: int = 32
    swa_num_key_value_heads: int = 32
    swa_v_head_dim: int = 128
    moe_intermediate_size: int = 1024
    n_shared_experts: int = 1
    n_routed_experts: int = 128
    num_experts_per_tok: int = 6
    moe_layer_freq: int = 1
    first_k_dense_replace: int = 1
    routed_scaling_factor: float = 1.0
    norm_topk_prob: bool = True
    scoring_func: str = "sigmoid"
    n_group: int = 1
    topk_method: str = "noaux_tc"
    topk_group: int = 1
    rope_theta: float = 50000.0
    rope_scaling: dict[str, Any] | None = None
    index_n_heads: int | None = None
    index_head_dim: int | None = None
    index_topk: int | None = None
    language_only: bool = False
    im_start_token: str = "<|img|>"
    im_token: str = "<|imgpad|>"
    im_end_token: str = "<|endofimg|>"
    audio_start_token: str = "<|audio_comp_start|>"
    audio_token: str = "<|audio_comp_pad|>"
    audio_end_token: str = "<|audio_comp_end|>"
    video_token: str = "<|video_pad|>"
