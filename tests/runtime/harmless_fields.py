"""Fields of config classes that no forward depends on: of training, of generation, of bookkeeping."""

from __future__ import annotations

HARMLESS = frozenset((
    *("architectures", "attention_dropout", "attn_pdrop", "bos_token_id", "chunk_size_feed_forward", "dtype"),
    *("embd_pdrop", "eos_token_id", "hidden_dropout", "id2label", "initializer_range"),
    *("is_encoder_decoder", "label2id", "num_mtp_layers", "num_nextn_predict_layers"),
    *("output_hidden_states", "output_router_logits", "pad_token_id", "pretraining_tp"),
    *("problem_type", "resid_pdrop", "return_dict", "router_aux_loss_coef"),
    *("router_jitter_noise", "sep_token_id", "transformers_version", "use_cache"),
))  # fmt: skip
# Those of one family: of initial values, of other servers' kernels, of what its models never have.
OF_FAMILY: dict[str, frozenset[str]] = {
    **dict.fromkeys(("bert", "xlm-roberta"), frozenset((
        *("attention_probs_dropout_prob", "classifier_dropout", "hidden_dropout_prob"),
    ))),
    "bailing_moe": frozenset((
        *("embedding_dropout", "max_window_layers", "output_dropout", "sliding_window"),
    )),
    "bailing_moe_v2": frozenset((
        *("embedding_dropout", "max_window_layers", "mtp_loss_scaling_factor", "output_dropout"),
    )),
    "sarvam_mla": frozenset(("embedding_dropout", "output_dropout", "use_qk_norm")),
    **dict.fromkeys(("sarvam_moe", "llada2_moe"), frozenset((
        *("embedding_dropout", "max_window_layers", "mtp_loss_scaling_factor", "output_dropout"),
    ))),
    **dict.fromkeys(("sdar", "sdar_moe"), frozenset(("max_window_layers", "sliding_window"))),
    "bailing_hybrid": frozenset((
        *("embedding_dropout", "max_window_layers", "mtp_loss_scaling_factor", "num_key_value_heads"),
        *("output_dropout", "seq_aux"),
    )),
    "bailing_hybrid_v3": frozenset((
        *("mtp_loss_scaling_factor", "num_key_value_heads"),
    )),
    "baichuan": frozenset(("z_loss_weight",)),
    "inkling_model": frozenset((
        *("chain_hidden_post_norm", "mtp_local_extent", "mtp_swa_head_dim", "mtp_swa_num_attention_heads"),
        *("mtp_swa_num_key_value_heads", "shared_experts_size"),
    )),
    "dbrx": frozenset(("emb_pdrop",)),
    "deepseek": frozenset(("aux_loss_alpha", "seq_aux")),
    "deepseek_v2": frozenset((
        *("head_dim", "num_key_value_heads"),
    )),
    "deepseek_v3": frozenset((
        *("num_key_value_heads",),
    )),
    "mistral4": frozenset((
        *("num_key_value_heads",),
    )),
    "mistral_large_3": frozenset((
        *("num_key_value_heads",),
    )),
    **dict.fromkeys(("kimi_k2", "dots_vlm_text", "deepseek_vl2_text"), frozenset((
        *("num_key_value_heads",),
    ))),
    "deepseek_v32": frozenset((
        *("head_dim", "layer_types", "num_key_value_heads"),
    )),
    "interns2_mobius_text": frozenset(("decoder_sparse_step", "mlp_only_layers")),
    "mllama_text_model": frozenset(("dropout",)),
    "seed_oss": frozenset(("residual_dropout",)),
    "gpt_neox": frozenset(("classifier_dropout", "is_decoder")),
    "grok": frozenset((
        *("load_presharded_attn", "load_presharded_embedding", "load_presharded_mlp"),
        *("load_presharded_moe", "merge_gate_up"),
    )),
    "step3_text": frozenset(("max_position_embedding",)),
    "gigachat3_5": frozenset((
        *("head_dim", "nextn_is_sparse", "num_key_value_heads"),
    )),
    "exaone": frozenset((
        *("embed_dropout",),
    )),
    "minicpm": frozenset(("mup_denominator",)),
    "chatglm": frozenset((
        *("apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion"),
        "prefix_projection",  # where there is no prefix, which pre_seq_len tells
    )),
    # ... and of what SGLang's class makes nothing of: layers that see blocks, a limit, how much logits count
    "phi3small": frozenset((
        *("attention_dropout_prob", "blocksparse_homo_head_pattern", "blocksparse_num_local_blocks"),
        *("blocksparse_vert_stride", "dense_attention_every_n_layers", "embedding_dropout_prob"),
        *("ffn_dropout_prob", "gegelu_limit", "mup_width_multiplier", "pad_sequence_to_multiple_of_64"),
        "reorder_and_upcast_attn",
    )),
    "gpt_bigcode": frozenset(("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32")),
    "opt": frozenset(("dropout", "init_std", "layerdrop")),
    # ... and of answers to other questions than the next token
    "gpt2": frozenset((
        *("summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type"),
        *("summary_use_proj",),
    )),
    "minicpm3": frozenset(("head_dim", "num_key_value_heads")),
    "TeleFLM": frozenset(("input_mult", "mup_scale_factor", "output_mult")),  # where use_mup does not say so
    # ... and of requests longer than its models were trained with, which SGLang's class takes as any
    "qwen": frozenset((
        *("attn_dropout_prob", "bf16", "emb_dropout_prob", "fp16", "fp32", "scale_attn_weights"),
        *("softmax_in_fp32", "use_cache_kernel", "use_cache_quantization", "use_dynamic_ntk"),
        *("use_flash_attn", "use_logn_attn"),
    )),
    "kimi_linear": frozenset((
        *("num_key_value_heads",),
    )),
    "kimi_k3_text": frozenset((
        *("head_dim", "mla_use_nope", "num_key_value_heads", "rope_theta", "use_grouped_topk"),
    )),
    "dots3_note_text": frozenset((
        *("audio_end_token", "audio_start_token", "audio_token", "im_end_token", "im_start_token"),
        *("im_token", "language_only", "video_token"),
    )),
    "longcat_flash": frozenset((
        *("head_dim", "num_key_value_heads"),
    )),
    "glm4_moe_lite": frozenset((
        *("num_key_value_heads",),
    )),
    "glm_moe_dsa": frozenset((
        *("head_dim", "layer_types", "num_key_value_heads"),
    )),
    "glm5_next_text": frozenset((
        *("head_dim",),
    )),
    "phi3": frozenset((
        *("original_max_position_embeddings",),  # of a longrope alone
    )),
    "phimoe": frozenset((
        *("input_jitter_noise",),
    )),
    "mellum": frozenset((
        *("mtp_layer_types", "mtp_mlp_layer_types"),
    )),
    "nemotron_h": frozenset((
        *("attention_bias", "expand", "mamba_proj_bias", "mamba_ssm_cache_dtype"),
        *("moe_shared_expert_overlap", "mtp_layers_block_type", "num_logits_to_keep"),
        *("rescale_prenorm_residual", "residual_in_fp32", "sliding_window", "time_step_floor"),
        *("time_step_limit", "time_step_max", "use_mamba_kernels"),
    )),
    "nemotron_h_puzzle": frozenset((
        *("attention_bias", "mamba_dt_init_floor", "mamba_dt_max", "mamba_expand", "mamba_proj_bias"),
        *("mtp_block_configs", "mtp_layers_block_type", "num_logits_to_keep", "rescale_prenorm_residual"),
        *("residual_in_fp32", "use_mamba_kernels"),
    )),
    "zaya": frozenset((
        *("activation_func_fp8_input_store", "add_bias_linear", "apply_rope_fusion"),
        *("bias_activation_fusion", "cca", "fused_add_norm", "residual_in_fp32"),
    )),
    # ... of initial values, of ways to the same sums, and of a residual that SGLang keeps as rows are
    **dict.fromkeys(("mamba", "falcon_mamba", "mamba2"), frozenset((
        *("rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_init_scheme"),
        *("time_step_max", "time_step_min", "time_step_scale", "use_associative_scan", "use_mambapy"),
    ))),
    # ... and of what a sum is rounded to
    "hy_v3": frozenset((
        *("enable_moe_fp32_combine",),
    )),
    "hy_v4": frozenset((
        *("head_dim", "learnable_sink_init", "num_key_value_heads"),
    )),
    "falcon_h1": frozenset((
        *("num_logits_to_keep",),
    )),
    "hunyuan_v1_dense": frozenset((
        *("eod_token_id",),
    )),
    "hunyuan_v1_moe": frozenset((
        *("eod_token_id",),
    )),
    "qwen3_omni_moe_text": frozenset((
        *("sliding_window",),
    )),
    # ... and of what SGLang lowers a coefficient to, which none of its models has
    "gemma3n_text": frozenset(("altup_coef_clip",)),
    "starcoder2": frozenset((
        *("embedding_dropout", "residual_dropout"),
    )),
    "step3p5": frozenset((
        *("mtp_layer_types", "mtp_mlp_layer_types"),
    )),
}  # fmt: skip
OF_FAMILY["mamba2"] |= {"time_step_rank"}  # of the first Mamba's mixers
