"""What of a config this runtime computes, and what it names."""

from __future__ import annotations

import math
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import Caps
from runtime.server.recurrent import KimiDeltaConfig, LightningConfig
from tests.oracle.published import published
from tests.runtime.config_files import config_file
from tests.runtime.families import delta_layers

_ALIKE = "sliding_attention"
_STEP = {
    "num_hidden_layers": 4,
    "layer_types": [_ALIKE, "full_attention"] * 2,
    "rope_parameters": None,
    "sliding_window": 512,
}
_HEADS_APART = {"num_attention_heads": 64, "num_sliding_attention_heads": 96}
_IN_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
_NO_STATES_ALONE = "no layer has attention"
_SIGMOID = {"expert_selection_fn": "sigmoid", "norm_topk_prob": False}
_FIRST_DENSE = {
    "first_k_dense_replace": 2,
    "mlp_layer_types": ["dense"] * 2 + ["sparse"] * 38,
    "prefix_dense_intermediate_size": 9,
}
_DELTAS = delta_layers([one for one in range(1, 28) if one == 1 or one % 4 != 1], 27)
_LONG = {
    "rope_type": "longrope", "short_factor": [1.0] * 64, "long_factor": [2.0] * 64, "short_mscale": 1.0,
    "long_mscale": 1.1, "original_max_position_embeddings": 4096,
}  # fmt: skip
_FLAT = {"rope_theta": 5e5, "rope_parameters": None}
_YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096}


def _blocks(**told: Any) -> list[dict[str, Any]]:
    """Of a Llama-Nemotron, whose last layer is told this, too."""
    layer = {"attention": {"no_op": False, "n_heads_in_group": 8}, "ffn": {"no_op": True}}
    both = {"no_op": False, "n_heads_in_group": 8}, {"no_op": False, "ffn_mult": 0.01}
    part = "attention" if "window_length" in told else "ffn"
    last = dict(zip(("attention", "ffn"), both, strict=True))
    return [layer] * 31 + [{**last, part: {**last[part], **told}}]


def _puzzle(**told: Any) -> list[dict[str, Any]]:
    """Of a Nemotron-H Puzzle, of which the layer that has such a thing is told this, too."""
    kinds = ("mamba", "attention", "mlp", "moe")
    own = {"head_dim": "attention", "ssm_state_size": "mamba"}
    return [
        {"block_type": kind, **{one: value for one, value in told.items() if own.get(one, "moe") == kind}}
        for kind in kinds
    ]


def _two(**told: Any) -> list[dict[str, Any]]:
    return [*_puzzle(), {"block_type": "moe", **told}]


def _words(blocks: list[dict[str, Any]]) -> list[str]:
    return [block["block_type"] for block in blocks]


# What is one step from what this runtime computes, and what it says of it.
_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
# As a checkpoint has it, without transformers' spellings.
_LING_3 = {
    **dict.fromkeys(("linear_head_dim", "linear_num_heads", "linear_conv_kernel_dim", "num_expert_group")),
    **dict.fromkeys(("num_experts_per_token", "moe_renormalize", "model_max_length")),
    **{"head_dim": 128, "norm_topk_prob": True, "max_position_embeddings": 262144, "no_kda_lora": True},
    **{"moe_router_enable_expert_bias": True, "gated_attention_proj_granularity_type": "head_wise"},
}
_GIGA_YARN = {"type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0}
_HALF = {"partial_rotary_factor": 0.5}
_BESIDE_COMPUTED: tuple[tuple[str, dict[str, Any], dict[str, Any], str], ...] = (
    ("llama4_text", {}, {"layer_types": ["chunked_attention"] * 48}, "layer_types are not those of"),
    ("phi3", {}, {"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "'linear': models of this"),
    (
        "granitemoehybrid",
        {"time_step_limit": [0, math.inf]},
        {"time_step_limit": [0, 9.0]},
        "time_step_limit",
    ),
    (
        "granitemoehybrid",
        {"layer_types": ["attention"] * 32},
        {"layer_types": ["mamba"] * 32},
        _NO_STATES_ALONE,
    ),
    ("nemotron_h", {}, {"layers_block_type": ["mamba", "mlp"]}, _NO_STATES_ALONE),
    ("mimo_v2_flash", {}, {"routed_scaling_factor": 2.0}, "routed_scaling_factor is 2.0"),
    ("mimo_v2_flash", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ("mimo_v2_flash", {}, {"moe_router_dtype": "bfloat16"}, "moe_router_dtype is 'bfloat16'"),
    ("mimo_v2_flash", {}, {"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
    ("mimo_v2_flash", {}, {"topk_method": "greedy"}, "topk_method is 'greedy'"),
    ("mimo_v2_flash", {}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
    ("mimo_v2_flash", {}, {"rope_parameters": {"rope_theta": 9.0}}, "not told of full_attention"),
    ("mimo_v2_flash", {"v_head_dim": 192}, {"v_head_dim": 256}, "v_head_dim is 256"),
    ("mimo_v2_flash", {}, {"head_dim": 160}, "of 160 would turn 53"),
    (
        "mimo_v2_flash",
        {"moe_layer_freq": [0, *[1] * 47]},
        {"moe_layer_freq": [1] * 48},
        "mlp_layer_types are",
    ),
    ("mimo_v2_flash", {}, {"hybrid_layer_pattern": [0] * 48}, "layer_types are not those of"),
    ("mimo_v2_flash", {}, {"quantization_config": {**_IN_BLOCKS, "store_dtype": "mxfp4"}}, "store_dtype"),
    ("internlm2", {"bias": False}, {"bias": True}, "bias is True"),
    ("internlm2", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ("internlm2", {"head_dim": 128}, {"head_dim": 64}, "head_dim is 64"),
    ("internlm2", {}, {"quantization_config": {"quant_method": "fp8"}}, "quantization_config: SGLang takes"),
    ("bailing_moe", {}, {"use_bias": True}, "use_bias is True"),
    ("bailing_moe", {"n_group": 0}, {"n_group": 2}, "n_group is 2 and topk_group 0"),
    ("bailing_moe", {"score_function": "softmax"}, {"score_function": "sigmoid"}, "score_function is"),
    ("bailing_moe", {"use_sliding_window": False}, {"use_sliding_window": True}, "use_sliding_window"),
    ("bailing_moe_v2", {"router_dtype": "fp32"}, {"router_dtype": "bf16"}, "router_dtype is 'bf16'"),
    ("bailing_moe_v2", {"topk_group": 8}, {"topk_group": 9}, "n_group is 8 and topk_group 9"),
    ("bailing_moe_v2", {"topk_group": 1}, {"topk_group": 0}, "n_group is 8 and topk_group 0"),
    ("bailing_moe_v2", {"num_experts": 64}, {"topk_group": 1, "num_experts": 32}, "num_experts_per_tok is 8"),
    ("bailing_moe_v2", {}, {"norm_topk_prob": None}, "norm_topk_prob is missing"),
    (
        "bailing_moe_v2",
        {"rotary_dim": 128},
        {"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        "turns 64 values, SGLang 128",
    ),
    *(("internlm3", {}, {one: True}, f"{one} is True") for one in ("qkv_bias", "bias", "attention_bias")),
    ("internlm3", {}, {"head_dim": None}, "head_dim is missing"),
    *(
        ("minicpm", {}, told, said)
        for told, said in (
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"attention_bias": True}, "attention_bias is True"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"num_experts": 8}, "num_experts is 8"),
            ({"sparse_config": {"topk": 64}}, "sparse_config is"),
            ({"mixer_types": ["lightning"]}, "mixer_types is"),
        )
    ),
    *(
        ("minicpm_sala", {}, told, said)
        for told, said in (
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"attention_bias": True}, "attention_bias is True"),
            ({"num_experts": 8}, "num_experts is 8"),
            ({"lightning_scale": 0.5}, "lightning_scale is 0.5"),
            ({"linear_backend": "minimax"}, "linear_backend is 'minimax'"),
            ({"lightning_nkv": 2}, "lightning_nkv is 2 beside 32 heads"),
            ({"rope_parameters": {"rope_theta": 9.0}}, "rope_parameters is"),
            ({"mixer_types": ["attn"]}, "no layer has a state"),
            ({"mixer_types": ["lightning"]}, "no layer has attention"),
        )
    ),
    *(
        (name, {}, told, said)
        for name in ("orion", "xverse", "TeleFLM")
        for told, said in (
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"attention_bias": True}, "attention_bias is True"),
        )
    ),
    *(
        ("spark2_5", {}, told, said)
        for told, said in (
            ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
            ({"attention_bias": True}, "attention_bias is True"),
            ({"rope_scaling": {"type": "yarn"}}, "rope_scaling is"),
            ({"layer_types": ["full_attention"] * 28}, "layer_types have no window"),
            (
                {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}},
                "no rope_theta of sliding_attention",
            ),
        )
    ),
    ("orion", {}, {"head_dim": 64}, "head_dim is 64"),
    ("xverse", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    *(
        ("qwen", {}, told, said)
        for told, said in (
            ({"no_bias": False}, "no_bias is False"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"kv_channels": 64}, "kv_channels is 64"),
            ({"rotary_pct": 0.5}, "rotary_pct is 0.5"),
            ({"rotary_emb_base": 1000}, "rotary_emb_base is 1000"),
            ({"vocab_size": 151937}, "vocab_size is 151937"),
            ({"visual": {"width": 1664}}, "visual is"),
        )
    ),
    ("exaone", {}, {"head_dim": 128}, "head_dim is 128"),
    ("exaone", {}, {"rope_is_neox_style": False}, "rope_is_neox_style is False"),
    ("exaone", {}, {"original_max_position_embeddings": 8}, "original_max_position_embeddings is 8, which"),
    ("exaone", {}, {"activation_function": "swish"}, "activation_function is 'swish'"),
    *(
        ("apertus", {}, told, said)
        for told, said in (
            *(({one: True}, f"{one} is True") for one in ("mlp_bias", "bias", "qkv_bias", "post_norm")),
            *(({one: False}, f"{one} is False") for one in ("qk_norm", "rope_is_neox_style")),
            ({"output_vocab_size": 8}, "output_vocab_size is 8"),
            ({"original_max_position_embeddings": 8}, "original_max_position_embeddings is 8, which"),
            ({"rope_parameters": None, "rope_theta": 500000}, "rope_theta is 500000 without a rope"),
        )
    ),
    *(
        ("iquestcoder", {}, told, said)
        for told, said in (
            *(({one: True}, f"{one} is True") for one in ("use_sliding_window", "mlp_bias", "bias")),
            *(({one: None}, f"{one} is null") for one in ("num_key_value_heads", "head_dim")),
            ({"clip_qkv": 8.0}, "clip_qkv is 8.0"),
            ({"rope_is_neox_style": False}, "rope_is_neox_style is False"),
            ({"rope_parameters": {"rope_type": "default"}}, "rope_theta is missing"),
            ({"original_max_position_embeddings": 8}, "original_max_position_embeddings is 8, which"),
        )
    ),
    *(
        ("jet_nemotron", {}, told, said)
        for told, said in (
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"head_dim": 64}, "head_dim is 64: SGLang's class has heads of 128"),
            ({"rope_theta": 9.5}, "rope_theta is 9.5"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_theta": 9.0}}, "rope_parameters is"),
            ({"layer_types": ["jet", "attn", "swa", "jet"]}, "layer_types names 4 layers"),
            ({"layer_types": ["jet", "jet", "jet"]}, "layer_types has not both"),
            ({"layer_types": ["attn", "attn", "swa"]}, "layer_types has not both"),
        )
    ),
    *(
        ("iquestloopcoder", {}, told, said)
        for told, said in (
            *(
                ({one: True}, f"{one} is True")
                for one in ("use_sliding_window", "mlp_bias", "attention_bias", "bias")
            ),
            *(({one: 8}, f"{one} is 8") for one in ("clip_qkv", "sliding_window")),
            ({"rope_is_neox_style": False}, "rope_is_neox_style is False"),
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"head_dim": 64}, "head_dim is 64: SGLang's class has heads of 128"),
            ({"rope_theta": None}, "rope_theta is missing"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}}, "rope_parameters is"),
            ({"loop_num": 1}, "loop_num is 1"),
        )
    ),
    *(
        ("nemotron-nas", {}, told, said)
        for told, said in (
            *(({one: True}, f"{one} is True") for one in ("qkv_bias", "bias", "mlp_bias")),
            ({"rope_is_neox_style": False}, "rope_is_neox_style is False"),
            ({"original_max_position_embeddings": 8}, "original_max_position_embeddings is 8, which"),
            ({"block_configs": _blocks(window_length=8)}, "window_length of layer 31 is 8"),
            ({"block_configs": _blocks(intermediate_size=9)}, "intermediate_size of layer 31 is not the 256"),
            ({"block_configs": _blocks(hidden_act="gelu")}, "hidden_act of layer 31 is 'gelu'"),
        )
    ),
    ("olmo", {}, {"num_key_value_heads": 8}, "num_key_value_heads is 8"),
    ("olmo", {}, {"head_dim": 64}, "head_dim is 64"),
    ("olmo", {}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
    *(
        ("stablelm", {}, told, said)
        for told, said in (
            *(({one: True}, f"{one} is True") for one in ("use_parallel_residual", "qk_layernorm")),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"norm_eps": 1e-3}, "norm_eps is 0.001"),
            ({"rope_pct": 0.5}, "rope_pct is 0.5"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
            ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "turn 40 values, SGLang 20"),
        )
    ),
    *(
        ("muse_glimmer_text", {}, told, said)
        for told, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"attention_bias": True}, "attention_bias is True"),
            ({"use_qk_norm": False}, "use_qk_norm is False"),
            ({"use_attn_output_gate": None}, "use_attn_output_gate is None"),
            ({"normalize_tok_embeddings": False}, "normalize_tok_embeddings is False"),
            ({"layer_types": None}, "layer_types is missing"),
            ({"rope_parameters": {"rope_type": "default"}}, "rope_parameters have no rope_theta"),
            ({"rope_scaling": {"rope_type": "default", "rope_theta": 5.0}}, "rope_scaling is {"),
            ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5.0}}, "'linear'"),
            ({"layer_rope_theta": [500000.0] + [0] * 51}, "of layers that are sliding some turn, and some"),
        )
    ),
    *(
        ("phi", {}, told, said)
        for told, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"qk_layernorm": True}, "qk_layernorm is True"),
            ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
            ({"num_key_value_heads": 8}, "num_key_value_heads is 8"),
            ({"head_dim": 32}, "head_dim is 32"),
            ({"intermediate_size": 5632}, "intermediate_size is 5632: SGLang makes MLPs 8192 wide"),
            ({"n_inner": 5632}, "intermediate_size is 8192: SGLang makes MLPs 5632 wide"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
            ({"partial_rotary_factor": 0.25}, "rope_parameters turn 32 values, SGLang 16"),
        )
    ),
    *(
        ("solar", {}, told, said)
        for told, said in (
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"mlp_bias": True}, "mlp_bias is True"),
            ({"logit_scale": 2.0}, "logit_scale is 2.0"),
            ({"bskcn_1": [0, 1]}, "bskcn_1 has layer 0: SGLang keeps no residual of it"),
            ({"bskcn_4": [2]}, "bskcn_4 has layer 2, before which bskcn_2 has none"),
            ({"original_max_position_embeddings": 64}, "original_max_position_embeddings is 64"),
        )
    ),
    *(
        ("starcoder2", {}, told, said)
        for told, said in (
            ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
        )
    ),
    ("cohere", {}, {"use_qk_norm": True}, "use_qk_norm is True"),
    ("cohere", {}, {"attention_bias": True}, "attention_bias is True"),
    ("cohere2", {"sliding_window": 9}, {"sliding_window": None}, "sliding_window is None"),
    ("cohere2", {}, {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
    ("gemma4_text", {}, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
    ("gemma4_text", {}, {"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
    ("gemma4_text", {}, {"num_global_key_value_heads": 1}, "num_global_key_value_heads is 1 where"),
    ("gemma4_text", {}, {"per_layer_config": {"0": {"head_dim": 8}}}, "per_layer_config of layer 1 is not"),
    ("gemma4_text", {}, {"per_layer_config": {"0": {"skip": True}}}, "per_layer_config tells 'skip'"),
    ("gemma4_text", {}, {"rope_parameters": {}}, "not told of sliding_attention by itself"),
    ("laguna", {}, {"rope_parameters": None}, "not told of full_attention by itself"),
    ("laguna", {}, {"gating": False}, "gating is False"),
    ("laguna", {}, {"num_attention_heads_per_layer": [48] * 39 + [64]}, "per_layer of layer 39"),
    ("laguna", {}, {"moe_router_score_func": "sqrtsoftplus"}, "moe_router_score_func is"),
    ("laguna", {}, {"moe_apply_router_weight_on_input": True}, "router_weight_on_input is True"),
    ("laguna", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    *(
        ("olmo3", _FLAT, {**_FLAT, **told}, said)
        for told, said in (
            ({"rope_theta": None}, "rope_theta is missing"),
            ({"rope_parameters": {"rope_theta": 9.0}}, "SGLang reads rope_theta and rope_scaling"),
            ({"head_dim": 64}, "head_dim is 64"),
        )
    ),
    ("granitemoeshared", {}, {"attention_bias": True}, "attention_bias is True"),
    ("granitemoeshared", {"head_dim": 128}, {"head_dim": 64}, "head_dim is 64"),
    ("granitemoeshared", {}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "stretches no rope"),
    ("granitemoe_swa", {}, {"layer_rope_theta": [*range(32)]}, "in layers of one kind"),
    *(
        ("phimoe", {"lm_head_bias": True}, told, said)
        for told, said in (
            ({"lm_head_bias": False}, "lm_head_bias is False"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"num_experts_per_tok": 4}, "num_experts_per_tok is 4"),
            ({"router_jitter_noise": 0.1}, "router_jitter_noise is 0.1"),
            ({"sliding_window": 4096}, "sliding_window is 4096"),
            ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
            ({"rope_scaling": {**_LONG, "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
            ({"rope_scaling": _LONG, "original_max_position_embeddings": 8}, "embeddings is 8 beside"),
        )
    ),
    *(
        ("afmoe", {}, told, said)
        for told, said in (
            ({"attention_bias": True}, "attention_bias is True"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"score_func": "softmax"}, "score_func is 'softmax'"),
            ({"score_func": None}, "score_func is null"),
            ({"route_norm": False}, "route_norm is False"),
            ({"route_norm": None}, "route_norm is null"),
            ({"n_group": 2}, "n_group is 2"),
            ({"num_experts": None}, "num_experts is missing"),
            ({"layer_types": None}, "layer_types is missing"),
            ({"sliding_window": None}, "sliding_window is missing"),
            ({"partial_rotary_factor": 0.5, "rope_parameters": None}, "partial_rotary_factor is 0.5"),
            ({"rope_parameters": {"rope_type": "default"}}, "rope_parameters have no rope_theta"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "are both told"),
        )
    ),
    *(
        ("hy_v4", {}, changes, said)
        for changes, said in (
            *(({name: False}, f"{name} is False") for name in ("enable_ihc", "gated_mla", "learnable_sink")),
            ({"gating_type": "headwise"}, "gating_type is 'headwise'"),
            *(({name: 2}, f"{name} is 2") for name in ("n_group", "topk_group")),
            *(({name: True}, f"{name} is True") for name in ("tie_word_embeddings", "attention_bias")),
            ({"rope_parameters": None}, "rope_parameters has no rope_theta"),
            ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 2.0}}, "is 'yarn'"),
        )
    ),
    ("hy_v3", {}, {"first_k_dense_replace": 2}, "not those of first_k_dense_replace 2"),
    ("hy_v3", {}, {"first_k_dense_replace": None}, "not those of first_k_dense_replace 0"),
    ("hy_v3", {}, {"qk_norm": None}, "use_qk_norm and qk_norm are not told"),
    ("hy_v3", {}, {"use_qk_norm": False}, "use_qk_norm and qk_norm are not told"),
    ("hy_v3", {}, {"route_norm": False}, "route_norm is not true"),
    ("hy_v3", {}, {"num_shared_experts": 0}, "num_shared_experts is 0"),
    ("hy_v3", {}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
    ("cohere2_moe", {}, {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
    ("cohere2_moe", _SIGMOID, {**_SIGMOID, "expert_selection_fn": "softmax"}, "norm_topk_prob is False"),
    ("cohere2_moe", _FIRST_DENSE, {"first_k_dense_replace": 1}, "not those of first_k_dense_replace 1"),
    ("cohere2_moe", _FIRST_DENSE, {"prefix_dense_intermediate_size": None}, "intermediate_size is missing"),
    ("lfm2", {}, {"layer_types": ["conv"] * 32}, _NO_STATES_ALONE),
    ("lfm2_moe", {"layer_types": ["full_attention"] * 32}, {"layer_types": None}, "layer_types is missing"),
    ("lfm2", {"head_dim": 80}, {"head_dim": 64}, "head_dim is 64"),
    *(
        ("falcon_h1", told, other, said)
        for told, other, said in (
            ({}, {"projectors_bias": True}, "projectors_bias is True: SGLang reads mamba_proj_bias"),
            ({}, {"mamba_proj_bias": True}, "projectors_bias is False: SGLang reads mamba_proj_bias"),
            ({"mamba_rms_norm": False}, {"mamba_rms_norm": True}, "mamba_norm_before_gate is True"),
            ({"time_step_limit": [0, math.inf]}, {"time_step_limit": [0.1, 9.0]}, "time_step_limit"),
            ({}, {"layers_block_type": ["hybrid"] * 32}, "layers_block_type: SGLang's config class ends"),
            ({"rope_parameters": None, "rope_theta": 9.0}, {"rope_theta": None}, "rope_theta is missing"),
            ({}, {"quantization_config": {"quant_method": "fp8"}}, "mamba.in_proj is quantized in the file"),
        )
    ),
    *(
        ("longcat_flash", told, other, said)
        for told, other, said in (
            ({}, {"num_hidden_layers": 28}, "num_hidden_layers: SGLang makes as many"),
            ({}, {"intermediate_size": 7}, "intermediate_size is not ffn_hidden_size"),
            ({}, {"num_experts_per_tok": 8}, "num_experts_per_tok is not moe_topk"),
            ({}, {"oe_vocab_size_ratio": 78}, "oe_vocab_size_ratio: this runtime has no embeddings"),
            ({}, {"index_topk": 2048}, "index_topk: this runtime has no indexer"),
            ({}, {"zero_expert_type": "zero"}, "zero_expert_type is 'zero'"),
            (
                {"quantization_config": _IN_BLOCKS},
                {"quantization_config": {**_IN_BLOCKS, "ignored_layers": ["mlps"]}},
                "keeps none of this family's matrices plain",
            ),
            (
                {"quantization_config": _IN_BLOCKS},
                {"disable_quant_module": ["self_attn"]},
                "keeps none of this family's matrices plain",
            ),
            ({}, {"head_dim": 32}, "head_dim is not qk_rope_head_dim"),
            ({}, {"qk_head_dim": 32}, "qk_head_dim is not qk_nope_head_dim"),
            ({}, {"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters: SGLang reads rope_theta and"),
            ({}, {"rope_scaling": {"rope_theta": 5.0}}, "rope_theta is not the one outside"),
            ({"rope_scaling": _YARN}, {"rope_scaling": {"factor": 2.0}}, "rope_type is 'default'"),
        )
    ),
    ("nemotron_h", {}, {"sliding_window": 4}, "sliding_window is 4"),
    ("nemotron_h", {}, {"n_groups": 4}, "n_groups is 4, and mamba_n_groups 8"),
    ("nemotron_h", {}, {"mamba_n_groups": 4}, "n_groups is 8, and mamba_n_groups 4"),
    ("nemotron_h", {"n_shared_experts": 1}, {"n_shared_experts": 2}, "n_shared_experts is 2"),
    *(
        ("zaya", {}, told, said)
        for told, said in (
            *(
                ({one: value}, f"{one} is told")
                for one, value in (
                    *(("zaya_layers", ["a", 16]), ("cca_num_q_heads", [8, 0]), ("layer_types", ["hybrid"])),
                    *(("num_query_groups_list", [2, 0]), ("ffn_hidden_size_list", [0, 4096])),
                    *(("moe_intermediate_size", 2048), ("rope_parameters", {"rope_type": "default"})),
                )
            ),
            *(
                ({one: value}, f"{one} is {value}")
                for one in ("zaya_use_mod", "zaya_use_eda", "zaya_high_prec", "scale_residual_merge")
                for value in (False, None)
            ),
            ({"gated_linear_unit": False}, "gated_linear_unit is False"),
            ({"normalization": "LayerNorm"}, "normalization is 'LayerNorm'"),
            ({"activation_func": "gelu"}, "activation_func is 'gelu'"),
            ({"num_query_groups": 4}, "num_query_groups is 4"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is"),
            ({"moe_router_topk": 2}, "moe_router_topk is 2"),
            ({"cca_time0": 1}, "cca_time0 and cca_time1 are (1, 2)"),
            ({"swa_layers": [1]}, "swa_layers is"),
            ({"sliding_window": 8}, "sliding_window is 8"),
        )
    ),
    *(
        ("nemotron_h_puzzle", {}, told, said)
        for told, said in (
            ({"sliding_window": 8}, "sliding_window is 8"),
            ({"layers_block_type": None}, "layers_block_type is missing"),
            ({"layers_block_type": None, "hybrid_override_pattern": "M-*E"}, "tell different layers"),
            ({"n_groups": 4}, "n_groups is 4, and mamba_n_groups 8"),
            ({"n_groups": None}, "n_groups is missing"),
            ({"block_configs": _puzzle(head_dim=64)}, "head_dim of layer 1 is 64"),
            ({"block_configs": _puzzle(ssm_state_size=64)}, "ssm_state_size of layer 0 is 64"),
            ({"block_configs": _puzzle(n_shared_experts=2)}, "n_shared_experts is 2"),
            ({"block_configs": [*_puzzle(), {"block_type": "moe"}]}, "tell different layers"),
            (
                {"block_configs": _two(n_routed_experts=16), "layers_block_type": _words(_two())},
                "experts differ in more than moe_intermediate_size",
            ),
            ({"quantization_config": {"ignore": ["backbone.layers.0.mixer.in_proj"]}}, "names of backbone."),
        )
    ),
    *(
        ("kimi_linear", {"linear_attn_config": _DELTAS, "first_k_dense_replace": 1}, other, said)
        for other, said in (
            ({"n_group": 4}, "n_group is 4: SGLang reads num_expert_group"),
            ({"num_local_experts": 8}, "num_local_experts is 8: SGLang reads num_experts"),
            ({"max_position_embeddings": 64}, "SGLang reads model_max_length"),
            ({"first_k_dense_replace": 2}, "mlp_layer_types are not those"),
            ({"layer_types": ["full_attention"] * 27}, "layer_types are not those"),
            ({"linear_attn_config": delta_layers([*range(1, 28)], 27)}, _NO_STATES_ALONE),
            ({"linear_attn_config": delta_layers([], 27)}, "no layer has a state"),
            ({"linear_attn_config": delta_layers([1, 28], 27)}, "are not each of the layers 1 to 27 once"),
            ({"linear_attn_config": {**_DELTAS, "full_attn_layers": [1]}}, "are not each of the layers"),
            ({"linear_attn_config": {**_DELTAS, "kda_layers": None}}, "has no kda_layers"),
            ({"linear_attn_config": {**_DELTAS, "full_attn_layers": None}}, "has no full_attn_layers"),
            ({"linear_attn_config": {**_DELTAS, "num_heads": None}}, "has no num_heads"),
            ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        )
    ),
    *(
        ("grok", {}, other, said)
        for other, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"attn_logit_softcapping_method": "relu"}, "attn_logit_softcapping_method is 'relu'"),
            ({"router_logit_softcapping": 20.0}, "router_logit_softcapping is 20.0"),
            ({"replicate_lm_head": True}, "replicate_lm_head is True"),
            ({"replicate_embedding": True}, "replicate_embedding is True"),
            ({"rope_type": "yarn_log"}, "rope_type is 'yarn_log'"),
            ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_theta": 9.0, "factor": 2.0}}, "rope_parameters has factor"),
            ({"rope_parameters": {"rope_type": "default"}}, "rope_parameters has no rope_theta"),
            ({"context_len": 4096}, "context_len is another than max_position_embeddings"),
            ({"attn_temperature_len": 1}, "attn_temperature_len is 1"),
            ({"head_dim": 66, "rope_rotate_half_dims": True}, "33 of its values are no pairs"),
            ({"num_local_experts": 12}, "num_local_experts is 12"),
            ({"num_experts_per_tok": 4}, "num_experts_per_tok is 4"),
        )
    ),
    ("llada2_moe", {}, {"score_function": None}, "score_function is missing: what it is then, the"),
    (
        "llada2_moe",
        {},
        {"expert_capacity": 48},
        "expert_capacity is told: this runtime chooses experts token",
    ),
    *(
        ("diffusion_gemma_text", {}, told, said)
        for told, said in (
            ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'"),
            ({"hidden_activation": "silu"}, "hidden_activation is 'silu'"),
            ({"attention_bias": True}, "attention_bias is True"),
            *(({one: False}, f"{one} is False") for one in ("tie_word_embeddings", "attention_k_eq_v")),
            ({"rope_parameters": {}}, "not told of sliding_attention by itself"),
        )
    ),
    *(
        ("dbrx", {}, told, said)
        for told, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"hidden_size": 64}, "hidden_size is 64 beside d_model, which is 2048"),
            ({"num_key_value_heads": 4}, "num_key_value_heads is 4"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"n_heads": 24}, "d_model is no multiple of n_heads, which is 24"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
            ({"rope_parameters": {"rope_theta": 500.0}}, "rope_theta is 500.0: SGLang reads that of attn"),
            ({"rope_theta": 500.0}, "rope_theta is 500.0: SGLang reads that of attn_config"),
            ({"attn_config": {"rope_theta": 10000.5}}, "attn_config: rope_theta is 10000.5"),
            ({"ffn_config": {"ffn_act_fn": {"name": "gelu"}}}, "ffn_act_fn is 'gelu'"),
            ({"ffn_config": {"moe_normalize_expert_weights": None}}, "moe_normalize_expert_weights is None"),
            ({"ffn_config": {"uniform_expert_assignment": True}}, "uniform_expert_assignment is True"),
        )
    ),
    *(
        ("deepseek", {}, told, said)
        for told, said in (
            ({"attention_bias": True}, "attention_bias is True"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"num_attention_heads": 24, "num_key_value_heads": 24}, "hidden_size is no multiple of"),
            ({"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
            ({"num_experts_per_tok": None}, "num_experts_per_tok is missing"),
            ({"n_shared_experts": 0}, "n_shared_experts is 0"),
            ({"num_experts_per_tok": 1, "norm_topk_prob": True}, "norm_topk_prob is True beside one"),
            ({"rope_scaling": _YARN, "rope_parameters": None}, "rope_type is 'yarn': the class of its"),
        )
    ),
    *(
        (name, {}, told, said)
        for name in ("mixtral", "mixtral_quant")
        for told, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"rope_theta": 500.5, "rope_parameters": None}, "rope_theta is 500.5: SGLang takes its whole"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear': SGLang stretches"),
        )
    ),
    *(
        ("baichuan", {}, told, said)
        for told, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"num_attention_heads": 48}, "hidden_size is no multiple of"),
            ({"num_key_value_heads": 8}, "num_key_value_heads is 8"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
        )
    ),
    *(
        ("persimmon", {}, told, said)
        for told, said in (
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"layer_norm_eps": 1e-6}, "layer_norm_eps is 1e-06: SGLang norms queries and keys by 1e-05"),
            ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
            ({"num_attention_heads": 48}, "hidden_size is no multiple of"),
            ({"num_key_value_heads": 8}, "num_key_value_heads is 8"),
            ({"head_dim": 32}, "head_dim is 32"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
            ({"partial_rotary_factor": 0.25}, "rope_parameters turn 32 values, SGLang 16"),
        )
    ),
    *(
        ("xverse_moe", {}, told, said)
        for told, said in (
            ({"attention_bias": True}, "attention_bias is True"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"head_dim": 64}, "head_dim is 64"),
            ({"num_attention_heads": 24}, "hidden_size is no multiple of"),
            ({"num_shared_experts": 0}, "num_shared_experts is 0"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_type is 'linear': which ropes"),
        )
    ),
    ("sdar", {}, {"head_dim": None}, "head_dim is missing: what it is then, the checkpoint's own"),
    ("sdar", {}, {"tie_word_embeddings": True}, "tie_word_embeddings is True"),
    ("sdar", {}, {"use_sliding_window": True}, "use_sliding_window is True"),
    ("sdar_moe", {}, {"norm_topk_prob": None}, "norm_topk_prob is missing: what it is then, the"),
    ("sdar_moe", {}, {"norm_topk_prob": False}, "norm_topk_prob is False"),
    ("sdar_moe", {}, {"mlp_only_layers": [0]}, "mlp_only_layers is [0]"),
    ("sdar_moe", {}, {"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
    *(
        ("dots3_note_text", {}, other, said)
        for other, said in (
            ({"layer_types": ["full_attention"] * 30}, "layer_types are all full"),
            ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_scaling"),
            ({"num_experts": 64}, "num_experts is 64"),
        )
    ),
    *(
        ("sarvam_mla", {"rope_parameters": {"type": "default", "rope_theta": 5.0}}, other, said)
        for other, said in (
            ({"first_k_dense_replace": None}, "first_k_dense_replace is missing"),
            ({"num_shared_experts": None}, "num_shared_experts is missing"),
            ({"q_lora_rank": 24}, "q_lora_rank is 24"),
            ({"moe_layer_freq": 2}, "moe_layer_freq is 2"),
            ({"rope_parameters": {"type": "default"}}, "rope_theta is missing"),
            ({"rope_parameters": {"rope_type": "deepseek_yarn", "factor": 4.0}}, "has no type"),
            (
                {"rope_parameters": {"type": "deepseek_yarn", "factor": 4.0, "mscale": 1.0}},
                "no mscale_all_dim",
            ),
        )
    ),
    ("sarvam_moe", {}, {"head_dim": None}, "head_dim is missing: what it is then, the checkpoint's own"),
    *(
        ("step3_text", {}, other, said)
        for other, said in (
            ({"moe_layers_enum": None}, "moe_layers_enum is None"),
            ({"moe_layers_enum": [1, 2]}, "moe_layers_enum is [1, 2]"),
            ({"num_attention_groups": 2}, "num_attention_groups is 2"),
            ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope_type is 'yarn'"),
            ({"rope_scaling": {"type": "default", "rope_theta": 7.0}}, "and another in rope_scaling"),
        )
    ),
    *(
        ("gigachat3_5", {}, other, said)
        for other, said in (
            ({"hidden_act": "swish"}, "hidden_act is 'swish'"),
            ({"norm_type": "LlamaRMSNorm"}, "norm_type is 'LlamaRMSNorm'"),
            ({"layernorm_type": None}, "layernorm_type is None"),
            ({"linear_gating_type": None}, "linear_gating_type is None"),
            ({"linear_attn_o_norm_eps": 1e-3}, "linear_attn_o_norm_eps is not rms_norm_eps"),
            ({"layer_types": ["attention"] * 12}, "full_attention_layers are not those of layer_types"),
            ({"full_attention_layers": [12]}, "names others than layers 0 to 11"),
            ({"full_attention_layers": [*range(12)]}, "no layer has a state"),
            ({"rope_scaling": None}, "rope_type is 'default'"),
            ({"rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 1.0}}, "has no mscale_all_dim"),
            ({"rope_scaling": {**_GIGA_YARN, "attention_factor": 1.0}}, "has attention_factor"),
            ({"rope_scaling": {**_GIGA_YARN, "rope_theta": 7.0}}, "which SGLang takes, and another"),
        )
    ),
    *(
        ("kimi_k3_text", {}, other, said)
        for other, said in (
            ({"activation_situ_beta": None}, "activation_situ_beta is missing"),
            ({"topk_method": None}, "topk_method is None"),
            ({"moe_router_activation_func": None}, "moe_router_activation_func is None"),
            ({"n_routed_experts": 4}, "n_routed_experts is 4"),
            ({"num_experts_per_tok": 4}, "num_experts_per_tok is 4"),
            ({"layer_types": ["full_attention"] * 32}, "layer_types are not those"),
            ({"linear_attn_config": delta_layers([*range(1, 33)], 32)}, _NO_STATES_ALONE),
            ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        )
    ),
    *(
        (name, {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default", **_HALF}}, other, said)
        for name in ("phi3", "glm4", "persimmon")
        for other, said in (({"partial_rotary_factor": 0.25}, "partial_rotary_factor is 0.25 beside"),)
    ),
    *(
        ("minicpm3", {}, other, said)
        for other, said in (
            ({"v_head_dim": 32}, "v_head_dim is 32"),
            ({"mlp_bias": True}, "mlp_bias is True"),
            ({"num_experts": 8}, "num_experts is 8"),
        )
    ),
    *(
        ("phi3small", {}, other, said)
        for other, said in (
            ({"rope_scaling": {"type": "longrope"}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_type": "default"}}, "rope_parameters is"),
            ({"rope_position_scale": 2.0}, "rope_position_scale is 2.0"),
            ({"blocksparse_block_size": 32}, "blocksparse_triton_kernel_block_size is 64"),
            ({"intermediate_size": 96}, "intermediate_size is 96"),
            ({"head_dim": 32}, "head_dim is 32"),
        )
    ),
    *(
        ("gemma3n_text", {}, other, said)
        for other, said in (
            ({"hidden_activation": "gelu"}, "hidden_activation is 'gelu'"),
            ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
            ({"tie_word_embeddings": None}, "tie_word_embeddings is None"),
            ({"num_kv_shared_layers": 14}, "full_attention shares keys of layer 19, and in SGLang those of"),
            ({"num_kv_shared_layers": 16}, "sliding_attention shares keys of layer 18, and in SGLang those"),
            ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters tell 'rope_theta' of no kind"),
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
            *(
                ({"rope_parameters": {kind: {"rope_type": "linear", "factor": 2.0}}}, f"rope_type of {kind}")
                for kind in ("full_attention", "sliding_attention")
            ),
        )
    ),
    *(
        ("smollm3", {}, other, said)
        for other, said in (
            ({"mlp_bias": True}, "mlp_bias is True"),
            ({"use_sliding_window": True}, "use_sliding_window is True"),
            ({"sliding_window": 64}, "sliding_window is 64"),
            ({"head_dim": None}, "head_dim is null"),
            ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        )
    ),
    *(
        ("helium", {}, other, said)
        for other, said in (({"mlp_bias": True}, "mlp_bias is True"), ({"head_dim": 64}, "head_dim is 64"))
    ),
    ("seed_oss", {}, {"mlp_bias": True}, "mlp_bias is True"),
    ("ernie4_5_of_transformers", {}, {"use_bias": True}, "use_bias is True"),
    *(
        ("seed_oss", {}, other, said)
        for other, said in (
            ({"logit_scale": 0.5}, "logit_scale is 0.5"),
            ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
        )
    ),
    *(
        ("gpt_neox", {}, other, said)
        for other, said in (
            ({"rope_theta": 5e5}, "rope_theta is 500000.0"),
            ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
            ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
            ({"head_dim": 32}, "head_dim is 32"),
            ({"hidden_size": 66}, "hidden_size is no multiple of num_attention_heads"),
            ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
            ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        )
    ),
    *(
        ("jais2", {}, other, said)
        for other, said in (
            ({"hidden_act": "silu"}, "hidden_act is 'silu'"),
            ({"hidden_size": 66}, "hidden_size is no multiple of num_attention_heads"),
        )
    ),
    *(
        ("cwm", {}, other, said)
        for other, said in (
            ({"mlp_bias": True}, "mlp_bias is True"),
            ({"attention_bias": True}, "attention_bias is True"),
            ({"head_dim": None}, "head_dim is not told"),
            ({"rope_parameters": None}, "rope_parameters is null"),
        )
    ),
    *(
        (family, {}, other, said)
        for family in ("dots1", "solar_open")
        for other, said in (
            ({"num_experts": 4}, "num_experts is 4"),
            ({"num_shared_experts": 2}, "num_shared_experts is 2"),
            ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        )
    ),
    ("ministral", {"head_dim": 32}, {"head_dim": None}, "head_dim is not told"),
    *(
        ("nanbeige", {}, other, said)
        for other, said in (
            ({"loop_share_kv": True}, "loop_share_kv is True"),
            ({"enable_mhc": True}, "enable_mhc is True"),
            ({"loop_loss_weights": [0.5]}, "loop_loss_weights is [0.5]"),
            ({"loop_middle_layers": [1]}, "loop_middle_layers is [1]"),
            ({"emb_neighbor_num": 2}, "emb_neighbor_num is 2"),
            ({"loop_num": 2}, "loop_num is 2"),
            ({"rope_theta": None}, "rope_theta is null"),
            ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_scaling is"),
            ({"rope_parameters": {"rope_type": "default", "rope_theta": 9.0}}, "rope_parameters is"),
        )
    ),
    *(
        ("gpt2", {}, other, said)
        for other, said in (
            ({"activation_function": "gelu"}, "activation_function is 'gelu'"),
            ({"add_cross_attention": True}, "add_cross_attention is True"),
            ({"reorder_and_upcast_attn": True}, "reorder_and_upcast_attn is True"),
            ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
            ({"scale_attn_weights": False}, "scale_attn_weights is False"),
            ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
            ({"n_head": 7}, "n_embd is no multiple of n_head"),
            ({"hidden_size": 64}, "hidden_size is 64 beside n_embd, which is 768"),
            ({"head_dim": 7}, "head_dim is 7"),
            ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        )
    ),
    *(
        ("gpt_bigcode", {}, other, said)
        for other, said in (
            ({"activation_function": "relu"}, "activation_function is 'relu'"),
            ({"add_cross_attention": True}, "add_cross_attention is True"),
            ({"multi_query": False}, "multi_query is False"),
            ({"scale_attn_weights": None}, "scale_attn_weights is None"),
            ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
            ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        )
    ),
    *(
        ("gptj", {}, other, said)
        for other, said in (
            ({"activation_function": "relu"}, "activation_function is 'relu'"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"rotary": False}, "rotary is False"),
            ({"rotary_dim": 63}, "rotary_dim is 63"),
            ({"rotary_dim": 512}, "rotary_dim is 512: SGLang turns pairs of a head's 256 values"),
            ({"rope_theta": 5000.0}, "rope_theta is 5000.0"),
            ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        )
    ),
    *(
        ("opt", {}, other, said)
        for other, said in (
            ({"activation_function": "silu"}, "activation_function is 'silu'"),
            ({"_remove_final_layer_norm": True}, "_remove_final_layer_norm is True"),
            ({"num_attention_heads": 7}, "hidden_size is no multiple of num_attention_heads"),
            ({"head_dim": 7}, "head_dim is 7"),
            ({"num_key_value_heads": 2}, "num_key_value_heads is 2"),
        )
    ),
    *(
        ("chatglm", {}, other, said)
        for other, said in (
            ({"rmsnorm": False}, "rmsnorm is False"),
            ({"add_bias_linear": True}, "add_bias_linear is True"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"post_layer_norm": None}, "post_layer_norm is None"),
            ({"quantization_bit": 4}, "quantization_bit is 4"),
            ({"pre_seq_len": 128}, "pre_seq_len is 128"),
            ({"kv_channels": 64}, "kv_channels is 64"),
            ({"vocab_size": 7}, "vocab_size is 7"),
        )
    ),
    *(
        ("muse_spark_text", {}, other, said)
        for other, said in (
            ({"layer_types": None}, "layer_types is missing"),
            ({"layer_rope_theta": None}, "layer_rope_theta is missing"),
            ({"layer_rope_theta": [7.0] * 62}, "layer_rope_theta has others than rope_theta"),
            ({"layer_types": ["full_attention"] * 62}, "layers that are full turn by 2 bases"),
            ({"moe_hidden_size": 8192}, "moe_hidden_size is hidden_size 8192"),
            ({"num_shared_experts": 1}, "num_shared_experts is 1"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 500000.0}}, "rope_type is 'yarn'"),
        )
    ),
    *(
        ("inkling_model", {}, told, said)
        for told, said in (
            *(
                ({one: value}, f"{one} is told")
                for one, value in (
                    *(("layer_types", ["hybrid"] * 16), ("mlp_layer_types", ["sparse"] * 16)),
                    *(("moe_intermediate_size", 768), ("conv_kernel_size", 4)),
                )
            ),
            *(
                ({one: False}, f"{one} is False")
                for one in (
                    *("use_embed_norm", "use_sconv", "use_gate_bias", "use_global_scale"),
                    *("shared_expert_sink", "norm_after_topk", "inference_moe_w13_interleaved"),
                )
            ),
            ({"local_layer_ids": None}, "local_layer_ids is missing"),
            *(({one: True}, f"{one} is True") for one in ("q_bias", "o_bias", "tie_word_embeddings")),
            ({"padded_vocab_size": 201024}, "padded_vocab_size is 201024"),
            ({"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
            ({"gate_activation": "softmax"}, "gate_activation is 'softmax'"),
            ({"enable_lm_head_output_fp32": False}, "enable_lm_head_output_fp32 is False"),
            ({"v_head_dim": 64}, "v_head_dim is 64"),
            ({"swa_v_head_dim": 64}, "swa_v_head_dim is 64"),
            ({"sconv_kernel_size": 1}, "sconv_kernel_size is 1"),
            ({"mtp_local_layer_ids": [0]}, "mtp_local_layer_ids is [0]"),
        )
    ),
    *(
        ("beam", {}, other, said)
        for other, said in (
            ({"norm_topk_prob": None}, "norm_topk_prob is None"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"sliding_window": 1}, "sliding_window is 1"),
            ({"num_experts": 12}, "num_experts is 12"),
            ({"topk_group": 9}, "topk_group is 9"),
            ({"num_experts_per_tok": 129}, "num_experts_per_tok is 129"),
            ({"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}, "turn full_attention"),
            (
                {"rope_parameters": {"sliding_attention": {"rope_type": "yarn", "rope_theta": 1}}},
                "rope_type is 'yarn'",
            ),
            ({"rope_parameters": {"sliding_attention": {"rope_type": "default"}}}, "tell no rope_theta"),
        )
    ),
    *(
        ("k2_horizon", {}, other, said)
        for other, said in (
            ({"attention_bias": True}, "attention_bias is True"),
            ({"query_key_norm": True}, "query_key_norm is True"),
            ({"use_sliding_window": True}, "use_sliding_window is True"),
            ({"sliding_window": 64}, "sliding_window is 64"),
            ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
            ({"decoder_sparse_step": 2}, "decoder_sparse_step is 2"),
            ({"router_score_func": "softmax"}, "router_score_func is 'softmax'"),
            ({"rope_head_dim": 64}, "rope_head_dim is 64"),
            ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e7}}, "rope_type is 'yarn'"),
            ({"rope_parameters": {"rope_type": "default"}}, "rope_parameters has no rope_theta"),
            ({"xllm_source_router_gemm_partitions": 3}, "xllm_source_router_gemm_partitions is 3"),
        )
    ),
    *(
        ("iquest_q1", {}, other, said)
        for other, said in (
            ({"moe_router_dtype": "bf16"}, "moe_router_dtype is 'bf16'"),
            ({"enable_lm_head_fp32": False}, "enable_lm_head_fp32 is False"),
            ({"use_over_encoding": True}, "use_over_encoding is True"),
            ({"attention_bias": True}, "attention_bias is True"),
            ({"no_rope_layers": [3]}, "no_rope_layers is [3]"),
            ({"rope_scaling": {"type": "yarn", "rope_theta": 5.0}}, "type is 'yarn'"),
            ({"rope_parameters": {"rope_type": "default", "factor": 2.0}}, "rope_parameters has factor"),
            ({"quantization_config": {"quant_method": "fp8"}}, "SGLang's class reads experts that are plain"),
        )
    ),
    ("qwen3_next", {}, {"layer_types": ["full_attention"] * 48}, "no layer has a state"),
    ("nemotron_h", {}, {"layers_block_type": ["full_attention", "mlp"]}, "no layer has a state"),
    (
        "lfm2",
        {"layer_types": ["conv", "full_attention"] * 16},
        {"layer_types": ["full_attention"] * 32},
        "no layer has a state",
    ),
    *(
        ("bailing_hybrid", {"num_hidden_layers": 20}, other, said)
        for other, said in (
            ({"num_hidden_layers": 21}, "SGLang needs whole groups of 5"),
            ({"layer_group_size": 1}, "no layer has a state"),
            ({"layer_group_size": 20, "num_hidden_layers": 5}, "no layer has attention"),
            ({"layer_group_size": None}, "layer_group_size is missing"),
            ({"partial_rotary_factor": None}, "partial_rotary_factor is missing"),
            ({"rotary_dim": 256}, "would turn 256 values"),
            ({"rms_norm_eps": 1e-5}, "SGLang norms latents by it, too"),
            ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling: rope_type is 'yarn'"),
            ({"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters: rope_theta is 5.0: SGLang reads"),
            ({"num_experts_per_tok": 1}, "num_experts_per_tok is 1"),
            ({"num_experts": 1, "n_group": 1, "topk_group": 1}, "SGLang makes dense layers"),
            ({"moe_shared_expert_intermediate_size": 64}, "SGLang makes shared experts 512 wide"),
            ({"quantization_config": {"quant_method": "fp8"}}, "and those in fp8 blocks"),
            ({"quantization_config": {"quant_method": "mxfp4"}}, "and those in fp8 blocks"),
            ({"quantization_config": {"quant_method": "modelopt"}}, "SGLang's head has no name"),
            ({"quantization_config": {**_BLOCKS, "ignored_layers": ["a"]}}, "ignored_layers: this runtime"),
            ({"quantization_config": {**_BLOCKS, "activation_scheme": "static"}}, "activation_scheme is"),
        )
    ),
    *(
        ("bailing_hybrid_v3", _LING_3, other, said)
        for other, said in (
            ({"num_hidden_layers": 41}, "SGLang needs whole groups of 6"),
            ({"layer_group_size": 1}, "no layer has a state"),
            ({"layer_group_size": 7}, "layer_types are not those of layer_group_size 7"),
            ({"layer_group_size": None}, "layer_group_size is missing"),
            ({"first_k_dense_replace": 1}, "mlp_layer_types are not those of first_k_dense_replace"),
            ({"kda_safe_gate": None}, "kda_safe_gate is missing"),
            ({"kda_lower_bound": None}, "kda_lower_bound is missing"),
            ({"no_kda_lora": None}, "no_kda_lora is missing"),
            ({"rope_parameters": None, "rope_theta": None}, "rope_theta is missing"),
            ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'"),
            ({"rms_norm_eps": 1e-5}, "SGLang norms latents by it"),
            ({"num_experts_per_token": 4}, "num_experts_per_token is 4: SGLang reads num_experts_per_tok"),
            ({"model_max_length": 4096}, "model_max_length is 4096: SGLang reads max_position_embeddings"),
            ({"linear_num_heads": 16}, "linear_num_heads is 16: SGLang reads num_attention_heads"),
            ({"v_head_dim": 64}, "v_head_dim is 64 and head_dim 128"),
            ({"num_experts": 1, "n_group": 1, "topk_group": 1}, "SGLang makes dense layers"),
            ({"moe_shared_expert_intermediate_size": 64}, "transformers has 768"),
            ({"quantization_config": {"quant_method": "fp8"}}, "and those in fp8 blocks"),
            ({"quantization_config": {**_BLOCKS, "store_dtype": "mxfp4"}}, "store_dtype: this runtime has"),
        )
    ),
    ("qwen3_next", {}, {"layer_types": ["linear_attention"] * 48}, _NO_STATES_ALONE),
    ("qwen3_5_text", {}, {"layer_types": ["linear_attention"] * 32}, _NO_STATES_ALONE),
    (
        "deepseek_v2",
        {"num_experts_per_tok": 1},
        {"num_experts_per_tok": None},
        "num_experts_per_tok is missing",
    ),
    (
        "deepseek_v2",
        {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 1, "num_experts_per_tok": 8},
        {"num_experts_per_tok": 9},
        "num_experts_per_tok is 9: 1 of 8 groups have fewer experts",
    ),
    ("qwen3_moe", {}, {"num_experts": 7}, "num_experts_per_tok is 8: there are 7 experts"),
    *(
        ("deepseek_v3", {}, other, said)
        for other, said in (
            ({"n_group": 5}, "256 experts are not evenly those of 5 groups"),
            ({"topk_group": 9}, "topk_group is 9: there are 8 groups of experts"),
            ({"n_group": 256, "topk_group": 8}, "each is worth what its best 2 are"),
        )
    ),
    ("hunyuan_v1_moe", {"moe_topk": [2, 2]}, {"moe_topk": [2, 1]}, "computes one number for all layers"),
    ("hunyuan_v1_moe", {"num_shared_expert": [1, 1]}, {"num_shared_expert": [2, 2]}, "computes 1"),
    *(
        (name, {"head_dim": size}, {"head_dim": size + 2}, f"head_dim is {size + 2}")
        for name, size in (("qwen2_vl_text", 128), ("glm4v_text", 128), ("olmoe", 128))
    ),
    (
        "step3p5",
        {**_STEP, "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8}},
        {"attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 4}},
        "KV heads of its own",
    ),
    (
        "step3p5",
        {
            **_STEP,
            **_HEADS_APART,
            "per_layer_config": {"0": {"num_attention_heads": 96}, "02": {"num_attention_heads": 96}},
        },
        {"per_layer_config": {"0": {"num_attention_heads": 96}}},
        "per_layer_config of layer 2 is not",
    ),
    (
        "step3p5",
        {**_STEP, "rope_theta": [9.0, 5.0] * 2},
        {"rope_theta": [9.0, 5.0, 9.0, 4.0]},
        "of layer 3 are not those",
    ),
    (
        "step3p5",
        {
            **_STEP,
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
            "yarn_only_types": ["full_attention"],
        },
        {"yarn_only_types": [_ALIKE]},
        "yarn_only_types names others",
    ),
)


@pytest.mark.parametrize(("name", "computed", "other", "said"), _BESIDE_COMPUTED)
def test_what_stands_beside_what_is_computed_is_named(
    name: str, computed: dict[str, Any], other: dict[str, Any], said: str
) -> None:
    file = {**config_file(name), **computed}
    assert not [why for why in model_config(file).obstacles if said in why]
    assert [why for why in model_config({**file, **other}).obstacles if said in why]


def test_apertus_turns_as_its_class_where_no_rope_is_told() -> None:
    file = config_file("apertus")
    assert file["rope_parameters"]["rope_type"] == "llama3"
    for told in ({}, {"rope_parameters": None}, {"rope_scaling": None}):
        kept = {name: value for name, value in file.items() if name != "rope_parameters"}
        assert model_config({**kept, **told}) == model_config(file)


def test_iquest_coder_is_told_how_long_requests_are() -> None:
    file = config_file("iquestcoder")
    del file["max_position_embeddings"]
    (why,) = model_config(file).obstacles
    assert "max_position_embeddings is missing" in why


# What this runtime computes of a field, by how the models themselves are written in SGLang.
_COMPUTED: dict[str, dict[str, tuple[Any, ...]]] = {
    "llama": {"mlp_bias": (False,), "hidden_act": ("silu", "swish")},
    "mimo": {"attention_bias": (True,)},
    "qwen3_vl_moe_text": {"norm_topk_prob": (True,)},
    "qwen3_next": {"attn_output_gate": (True,)},
    "deepseek_v2": {
        "scoring_func": ("softmax",),
        "norm_topk_prob": (False,),
        "topk_method": ("greedy", "group_limited_greedy"),
        "mlp_bias": (False,),
    },
    "deepseek_v3": {
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
    },
    "deepseek_v32": {"rope_interleave": (True,), "mlp_bias": (False,)},
    "glm_moe_dsa": {"rope_interleave": (True,), "mlp_bias": (False,)},
    "minimax_m2": {
        "use_qk_norm": (True,),
        "qk_norm_type": ("per_layer",),
        "scoring_func": ("sigmoid",),
        "use_routing_bias": (True,),
        "shared_intermediate_size": (0,),
    },
    "nemotron_h": {
        "mlp_hidden_act": ("relu2",),
        "mamba_hidden_act": ("silu", "swish"),
        "mlp_bias": (False,),
        "tie_word_embeddings": (False,),
    },
    "zaya": {
        "clamp_temp": (False,),
        "lm_head_bias": (False,),
        "normalization": ("RMSNorm",),
        "activation_func": ("swiglu",),
        "moe_router_topk": (1,),
    },
    "nemotron_h_puzzle": {
        "mlp_hidden_act": ("relu2",),
        "mamba_hidden_act": ("silu", "swish"),
        "mlp_bias": (False,),
        "tie_word_embeddings": (False,),
    },
    "kimi_linear": {
        "hidden_act": ("silu",),
        "tie_word_embeddings": (False,),
        "attention_bias": (False,),
        "q_lora_rank": (None,),
        "moe_layer_freq": (1,),
        "moe_router_activation_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "logit_scale": (1.0,),
        "use_grouped_topk": (True,),
        "mla_use_nope": (True,),
        "mla_use_output_gate": (False,),
        "latent_moe_use_norm": (False,),
        "attn_res_block_size": (None,),
        "routed_expert_hidden_size": (None,),
        "activation_situ_beta": (None,),
        "activation_situ_linear_beta": (None,),
        "mamba_ssm_dtype": (None,),
    },
    "kimi_k3_text": {
        "hidden_act": ("situ", "silu"),
        **dict.fromkeys(("tie_word_embeddings", "attention_bias"), (False,)),
        "moe_router_activation_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "logit_scale": (1.0,),
        **dict.fromkeys(("rope_scaling", "routing_method_type"), (None,)),
    },
    "step3_text": {
        "hidden_act": ("silu",),
        "tie_word_embeddings": (False,),
        "num_attention_groups": (1,),
        **dict.fromkeys(("n_routed_experts", "num_experts"), (None,)),
    },
    "gigachat3_5": {
        "hidden_act": ("silu",),
        **dict.fromkeys(("tie_word_embeddings", "attention_bias", "use_shared_expert_sigmoid"), (False,)),
        "linear_use_legacy_qkvz_layout": (False,),
        "linear_use_short_conv": (True,),
        "num_krope_heads": (1,),
        "attention_type": ("LlamaLatentAttention",),
        "norm_type": ("ZeroCenteredGatedNorm",),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "output_gate_type": ("sigmoid",),
        "linear_attention_type": ("Qwen3NextGatedDeltaNet",),
    },
    "dots3_note_text": {
        "hidden_act": ("silu",),
        **dict.fromkeys(("tie_word_embeddings", "attention_bias"), (False,)),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
    },
    "bailing_hybrid": {
        "hidden_act": ("silu", "swish"),
        **dict.fromkeys(("tie_word_embeddings", "use_bias", "use_qkv_bias", "use_mla_nope"), (False,)),
        **dict.fromkeys(("linear_silu", "use_linear_silu"), (False,)),
        **dict.fromkeys(("rope_interleave", "linear_rope", "norm_topk_prob"), (True,)),
        **dict.fromkeys(("moe_router_enable_expert_bias", "lightning_layerwise_decay"), (True,)),
        **dict.fromkeys(("score_function", "scoring_func"), ("sigmoid",)),
        "using_split_qkv_in_self_attention": (False,),
        "topk_method": ("noaux_tc",),
        "router_dtype": ("fp32",),
        "full_attention_type": ("mla",),
        "linear_backend": ("seg_la",),
        "short_conv_kernel_size": (None,),
    },
    "bailing_hybrid_v3": {
        "hidden_act": ("silu", "swish"),
        **dict.fromkeys(("tie_word_embeddings", "attention_bias", "use_bias", "use_qkv_bias"), (False,)),
        **dict.fromkeys(("use_mla_nope", "multi_gate"), (False,)),
        **dict.fromkeys(("rope_interleave", "moe_router_enable_expert_bias", "no_kda_lora"), (True,)),
        **dict.fromkeys(("score_function", "scoring_func"), ("sigmoid",)),
        "topk_method": ("noaux_tc",),
        "router_dtype": ("fp32",),
        "router_type": ("topN",),
        "full_attention_type": ("mla",),
        "gated_attention_proj_granularity_type": ("head_wise",),
    },
    "olmoe": {"clip_qkv": (None,)},
    "cohere2_moe": {
        "expert_selection_fn": ("softmax", "sigmoid"),
        "shared_expert_combination_strategy": ("average", "sum"),
        "attention_bias": (False,),
        "tie_word_embeddings": (True,),
    },
    "ernie4_5_moe": {"moe_norm_min": (1e-12,), "use_bias": (False,)},
    "granite": {"mlp_bias": (False,)},
    "longcat_flash": {
        "hidden_act": ("silu",),
        **dict.fromkeys(("tie_word_embeddings", "attention_bias", "router_bias"), (False,)),
        **dict.fromkeys(("mla_scale_q_lora", "mla_scale_kv_lora"), (True,)),
        "attention_method": ("MLA",),
        "rounter_params_dtype": ("float32",),
    },
    "falcon_h1": {"attention_bias": (False,), "mlp_bias": (False,)},
    "granitemoehybrid": {"position_embedding_type": ("rope", "nope", None)},
    "hunyuan_v1_moe": {"use_cla": (False,), "use_qk_norm": (True,)},
    "gemma": {
        "hidden_act": ("gelu_pytorch_tanh", "gelu"),
        "hidden_activation": ("gelu_pytorch_tanh",),
        "use_bidirectional_attention": (False,),
    },
    "gemma2": {"hidden_activation": ("gelu_pytorch_tanh",), "use_bidirectional_attention": (False,)},
    "gemma3_text": {"attn_logit_softcapping": (None,)},
    "arcee": {"hidden_act": ("relu2",), "mlp_bias": (False,)},
    "apertus": {"hidden_act": ("xielu",), "mlp_bias": (False,)},
}


@pytest.mark.parametrize(("name", "what"), [(one, what) for one, told in _COMPUTED.items() for what in told])
def test_a_field_is_computed_as_it_is_told_or_named(name: str, what: str) -> None:
    computed = _COMPUTED[name][what]

    def is_named(value: Any) -> bool:
        return any(f"{what} is" in why for why in model_config({**config_file(name), what: value}).obstacles)

    assert [value for value in computed if is_named(value)] == []
    others = {not computed[0]} if isinstance(computed[0], bool) else {"other", 7, 0.5} - {*computed}
    assert [value for value in others if not is_named(value)] == []


def test_a_position_is_turned_or_none_has_one() -> None:
    attention = {
        told: model_config(
            {**config_file("granitemoehybrid"), "position_embedding_type": told}
        ).main_attention
        for told in ("rope", "nope", None)
    }
    assert [told for told, one in attention.items() if one.rope is not None] == ["rope"]


def test_step_names_the_kind_of_layer_whose_positions_it_is_not_told() -> None:
    published_file = published()["stepfun-ai/Step-3.5-Flash"].config
    base = {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 1.0}
    told = {"sliding_attention": base, "full_attention": {**base, "partial_rotary_factor": 0.5}}

    def unsaid(*kinds: str) -> list[str]:
        ropes = {kind: told[kind] for kind in kinds}
        why = model_config({**published_file, "rope_parameters": ropes}).obstacles
        return [one for one in why if "by itself" in one]

    assert unsaid("sliding_attention", "full_attention") == [] == unsaid()
    (why,) = unsaid("full_attention")
    assert "not told of sliding_attention" in why


def test_ling_3_has_another_mixer_under_the_same_model_type() -> None:
    file = {**config_file("bailing_hybrid"), "architectures": ["BailingMoeV3ForCausalLM"]}
    assert isinstance(model_config(file).recurrent, KimiDeltaConfig)
    with pytest.raises(Unsupported, match="architectures names BailingHybridForCausalLM"):
        model_config({**file, "architectures": ["BailingHybridForCausalLM"]})


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"kda_lower_bound": 1.0}, "kda_lower_bound is 1.0: a number below 0"),
        ({"expert_swiglu_limit_list": 4}, "expert_swiglu_limit_list is 4: a list"),
        ({"share_expert_swiglu_limit_list": [-1.0]}, "a limit is below 0"),
        ({"layer_group_size": [1, 0]}, "layer_group_size is"),
    ],
)
def test_what_no_ling_3_says(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**config_file("bailing_hybrid_v3"), **told})


def test_experts_of_ling_3_are_capped_where_its_lists_say_so() -> None:
    lists = {"expert_swiglu_limit_list": [9, 9, 9, 4], "share_expert_swiglu_limit_list": [9, 9, 0, None, 7]}
    caps = model_config({**config_file("bailing_hybrid_v3"), **lists}).caps
    assert caps[:6] == (Caps(), Caps(), Caps(9, None), Caps(4, None), Caps(None, 7), Caps())
    assert model_config(config_file("bailing_hybrid_v3")).caps == ()


def test_lightning_attention_forgets_by_head_and_by_depth() -> None:
    recurrent = model_config(config_file("bailing_hybrid", num_attention_heads=6)).recurrent
    assert isinstance(recurrent, LightningConfig)
    first, last = recurrent.slopes(0), recurrent.slopes(19)
    assert first == pytest.approx(
        [one * (1 + 1e-5) for one in (1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8)]
    )
    assert last == pytest.approx([one * 1e-5 for one in (1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8)])


@pytest.mark.parametrize("tuned", [False, True])
def test_llama_4s_queries_grow_where_its_config_says_so(tuned: bool) -> None:
    attention = model_config(config_file("llama4_text", attn_temperature_tuning=tuned)).attention
    assert {kind: one.growth is not None for kind, one in attention.items()} == {
        "full": tuned,
        "sliding": False,
    }
