"""Each family's reading of a config.json beside the config class of the installed transformers."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
import transformers

from runtime.server.call_rules import kernels_route
from runtime.server.config import ModelConfig
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.known import FAMILIES, model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA
from tests.oracle.published import published
from tests.runtime.config_files import config_class, config_file
from tests.runtime.families import delta_layers
from tests.runtime.harmless_fields import HARMLESS, OF_FAMILY
from tests.runtime.published_classes import NEEDED
from tests.sweeps import is_taken

_ACTIVATION = {
    **dict.fromkeys(("exaone", "gpt2", "gpt_bigcode", "gptj", "opt"), "activation_function"),
    "zaya": "activation_func",
    **dict.fromkeys(("nemotron_h", "nemotron_h_puzzle"), "mlp_hidden_act"),
    "gemma2": "hidden_activation",
    **dict.fromkeys(("gemma3_text", "embedding_gemma"), "hidden_activation"),
    "gemma3n_text": "hidden_activation",
    "gemma4_text": "hidden_activation",
    "muse_glimmer_text": "hidden_activation",
    "diffusion_gemma_text": "hidden_activation",
}
# Which is, or is made, the other, or computed, too.
_ALSO = {"gemma": ("gelu",), "phi": ("gelu_pytorch_tanh",), "opt": ("gelu",), "gpt_bigcode": ("gelu",)}
_ALSO |= dict.fromkeys(("bert", "xlm-roberta"), ("gelu_pytorch_tanh", "gelu_new"))
_ALSO["gptj"] = ("gelu", "gelu_pytorch_tanh")
_ALSO["gpt_neox"] = ("gelu_fast", "gelu_new", "gelu_pytorch_tanh", "relu")
_OF_SGLANG = (
    *("nemotron_h", "mimo_v2_flash", "ernie4_5_moe", "step3p5"),
    "kimi_linear",
    "nemotron_h_puzzle",
    "zaya",
    "glm_ocr_text",
    "paddleocr_vl_text",
    "bailing_hybrid",
    "bailing_hybrid_v3",
    "deepseek_v4",
    "falcon_h1",
    "longcat_flash",
    "minimax_m3_vl_text",
    "afmoe",
    "beam",
    "olmo3",
    "glm5_next_text",
    "qwen4_exp_text",
    "dots3_note_text",
    "dots_vlm_text",
    "gigachat3_5",
    "deepseek_vl2_text",
    "step3_text",
    "moss_vl_text",
    "sarvam_mla",
    "sarvam_moe",  # or its checkpoints
    "internlm3",
    "iquestcoder",
    "k2_horizon",
    "interns1_pro_text",
    "interns2_mobius_text",
    "llada2_moe",
    "sdar",
    "sdar_moe",
    "hy_v4",
    "dbrx",
    "muse_glimmer_text",
    "muse_spark_text",
    "inkling_model",
)  # which has classes of its own
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_AS_WIDE = {"mamba2": {"expand": 1}}  # as all heads together, where rows are twice as wide
_OWN_SIZES = ("d_model", "n_layers", "n_heads", "n_embd", "n_layer", "n_head")  # as DBRX and GPT-2 have them


def _optional(family: str) -> list[str]:
    told = {*_SIZES, *_OWN_SIZES, "model_type", *NEEDED.get(family, {})}
    return [field.name for field in fields(config_class(family)) if field.name not in told]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_of_the_config_class_is_read_or_known_not_to_matter(name: str) -> None:
    family, file = FAMILIES[name], config_file(name)
    reading = Fields(file, family.defaults)
    family.read(reading)
    own = {field.name for field in fields(config_class(name))}
    unread = own - reading.seen - HARMLESS - OF_FAMILY.get(name, frozenset())
    assert not unread, f"{name} of transformers {transformers.__version__} has {sorted(unread)}"


# What published files say beside their config class, and where each is read.
_USUAL = {"model_type", "partial_rotary_factor", "rope_scaling", "rope_theta"}
_BESIDE = """
    bert head_dim num_key_value_heads position_embedding_type sbert_ce_default_activation_function
    xlm-roberta head_dim num_key_value_heads position_embedding_type sbert_ce_default_activation_function
    embedding_gemma _sliding_window_pattern rope_local_base_freq sliding_window_pattern
    mixtral num_experts
    mixtral_quant num_experts
    qwen2 head_dim
    mimo attention_bias head_dim
    qwen2_vl_text head_dim tie_word_embeddings
    qwen2_5_vl_text head_dim tie_word_embeddings
    qwen3_vl_text tie_word_embeddings
    qwen3_vl_moe_text norm_topk_prob num_local_experts
    qwen3_omni_moe_text head_dim num_local_experts tie_word_embeddings
    qwen2_moe head_dim num_local_experts
    qwen3_moe head_dim num_local_experts
    dbrx head_dim hidden_size max_position_embeddings num_attention_heads num_hidden_layers
        num_key_value_heads
    deepseek head_dim routed_scaling_factor topk_method use_mla v_head_dim
    deepseek_v2 mlp_layer_types moe_layer_freq scoring_func
    deepseek_v3 mlp_layer_types moe_layer_freq num_experts num_local_experts num_shared_experts
        scoring_func topk_method
    kimi_k2 mlp_layer_types moe_layer_freq num_experts num_local_experts num_shared_experts
        scoring_func topk_method
    dots_vlm_text mlp_layer_types moe_layer_freq num_experts num_local_experts num_shared_experts
        scoring_func topk_method
    deepseek_vl2_text mlp_bias mlp_layer_types moe_layer_freq num_experts num_local_experts num_shared_experts
        scoring_func topk_method
    mistral4 num_local_experts
    mistral_large_3 llama_4_scaling moe_layer_freq num_local_experts routing_method_type
        scoring_func topk_method
    mistral rope_is_neox_style
    deepseek_v32 moe_layer_freq num_experts num_local_experts num_shared_experts rope_interleave
        scoring_func topk_method
    glm5_next_text first_k_dense_replace gate_lower_bound index_kpool_compress index_skip_topk_offset
        index_topk_freq index_topk_pattern linear_attn_config mhc moe_layer_freq num_experts
        num_local_experts num_shared_experts scoring_func topk_method
    deepseek_v4 compress_ratios hc_pre_from_prev_sublayer intermediate_size num_hash_layers q_head_norm
        qk_rope_head_dim topk_method
    glm4_moe head_dim mlp_layer_types moe_layer_freq num_experts num_local_experts
        num_shared_experts
    glm4v_text head_dim tie_word_embeddings
    glm4v_moe_text head_dim mlp_layer_types moe_layer_freq num_experts num_local_experts
        num_shared_experts
    glm4_moe_lite first_k_dense_replace moe_layer_freq num_experts num_local_experts
        num_shared_experts scoring_func topk_method
    glm_ocr_text attention_bias head_dim tie_word_embeddings
    glm_moe_dsa index_skip_topk_offset index_topk_freq index_topk_pattern moe_layer_freq num_experts
        num_local_experts num_shared_experts rope_interleave scoring_func topk_method
    gpt_oss num_experts
    minicpm head_dim mixer_types num_experts
    minimax_m2 num_experts qk_norm_type rotary_dim scoring_func shared_intermediate_size use_qk_norm
        use_routing_bias
    minimax_m3_vl_text attention_output_gate moe_layer_freq n_shared_experts qk_norm_type quantization_config
        scoring_func sparse_attention_config swiglu_beta use_gemma_norm use_qk_norm use_routing_bias
    ernie4_5_moe head_dim num_experts num_experts_per_tok
    paddleocr_vl_text layer_types rope_is_neox_style
    ernie4_5_vl_moe_text freq_allocation head_dim moe_layer_start_index num_experts_per_tok
    olmo head_dim
    olmo2 head_dim
    olmo3 head_dim
    olmoe head_dim num_local_experts
    orion head_dim
    seed_oss final_logit_softcapping layer_types logit_scale
    smollm3 final_logit_softcapping head_dim logit_scale
    helium final_logit_softcapping layer_types logit_scale
    ernie4_5_of_transformers final_logit_softcapping layer_types logit_scale
    gpt_neox final_logit_softcapping head_dim layer_types logit_scale num_key_value_heads rotary_emb_base
        rotary_pct
    jais2 final_logit_softcapping layer_types logit_scale
    cwm attention_bias final_logit_softcapping logit_scale
    ministral final_logit_softcapping logit_scale
    dots1 final_logit_softcapping head_dim logit_scale num_experts num_local_experts num_shared_experts
    solar_open final_logit_softcapping intermediate_size layer_types logit_scale num_experts
        num_local_experts num_shared_experts
    spark2_5 attention_bias hidden_act
    xverse attention_bias head_dim mlp_bias num_experts num_key_value_heads
        original_max_position_embeddings rope_is_neox_style
    xverse_moe attention_bias head_dim mlp_bias norm_topk_prob num_key_value_heads
    TeleFLM bias head_dim mlp_bias original_max_position_embeddings qkv_bias rope_is_neox_style
    qwen head_dim num_key_value_heads rope_parameters visual
    exaone head_dim num_hidden_layers original_max_position_embeddings rope_is_neox_style
    exaone4 head_dim
    exaone_moe attention_bias bias head_dim is_moe_layer moe_layer_freq n_routed_experts n_shared_experts
        num_local_experts
    muse_glimmer_text normalize_tok_embeddings use_attn_output_gate use_qk_norm
    baichuan head_dim num_key_value_heads
    persimmon head_dim num_key_value_heads
    phi head_dim n_inner
    solar bias head_dim logit_scale original_max_position_embeddings
    phi3 head_dim
    phimoe head_dim num_experts
    stablelm head_dim norm_eps rope_pct
    starcoder2 head_dim
    grok context_len rope_parameters router_logit_softcapping
    mellum num_local_experts
    qwen3_next attn_output_gate full_attention_interval num_local_experts output_gate_type
    qwen3_5_text attn_output_gate full_attention_interval output_gate_type
    qwen4_exp_text full_attention_interval intermediate_size num_local_experts
    qwen3_5_moe_text attn_output_gate full_attention_interval intermediate_size num_local_experts
        output_gate_type
    interns2_mobius_text attn_output_gate full_attention_interval num_local_experts quantization_config
    nemotron-nas bias original_max_position_embeddings qkv_bias rope_is_neox_style
    nemotron_h hybrid_override_pattern layer_types mamba_chunk_size mamba_conv_bias mamba_d_conv
        mamba_dt_min mamba_n_groups num_experts num_hidden_layers num_local_experts
        num_shared_experts
    nemotron_h_puzzle chunk_size conv_kernel hybrid_override_pattern num_experts num_hidden_layers
        num_local_experts num_shared_experts quantization_config time_step_min use_conv_bias
    zaya cca_num_q_heads ffn_hidden_size_list hidden_act intermediate_size layer_types moe_intermediate_size
        num_experts_per_tok num_query_groups_list rms_norm_eps rope_parameters router_hidden_size
        swa_layers swa_rotary_base zaya_layers
    mamba intermediate_size
    falcon_mamba intermediate_size
    mamba2 intermediate_size rms_norm
    gemma hidden_activation
    gemma3_text _sliding_window_pattern rope_local_base_freq sliding_window_pattern
    gemma3n_text rope_local_base_freq
    diffusion_gemma_text attention_k_eq_v canvas_length final_logit_softcapping global_head_dim
        num_global_key_value_heads per_layer_config
    gemma4_text global_head_dim num_global_key_value_heads per_layer_config
    granite head_dim
    granitemoe head_dim num_experts
    granitemoeshared head_dim num_experts
    granite_swa head_dim
    granitemoe_swa head_dim num_experts
    hunyuan_v1_dense use_qk_norm
    hunyuan_v1_moe moe_intermediate_size num_experts_per_tok num_local_experts num_shared_expert
        use_cla use_qk_norm
    step3p5 attention_other_setting gating moe_layers_enum moe_num_experts moe_router_activation
        moe_top_k need_fp32_gate norm_expert_weight num_attention_groups per_layer_config
        share_expert_dims use_bidirectional_attention use_head_wise_attn_gate use_moe_router_bias
        zero_centered
    bailing_moe moe_router_enable_expert_bias moe_shared_expert_intermediate_size multi_gate n_group
        norm_softmax rotary_dim routed_scaling_factor router_dtype router_type score_function
        topk_group use_qk_norm use_rmsnorm video_rope
    bailing_moe_v2 moe_shared_expert_intermediate_size multi_gate norm_head norm_softmax norm_topk_prob
        rotary_dim router_dtype router_type score_function use_rmsnorm use_sliding_window video_rope
    sarvam_moe moe_shared_expert_intermediate_size multi_gate norm_head norm_softmax norm_topk_prob
        rotary_dim router_dtype router_type score_function use_rmsnorm use_sliding_window video_rope
    sarvam_mla attention_bias moe_layer_freq mlp_layer_types n_group norm_topk_prob q_lora_rank router_dtype
        score_function topk_group
    llada2_moe expert_capacity moe_shared_expert_intermediate_size multi_gate norm_head norm_softmax
        norm_topk_prob rotary_dim router_dtype router_type score_function use_rmsnorm use_sliding_window
        video_rope
    sdar_moe num_local_experts
    apertus bias head_dim mlp_bias original_max_position_embeddings output_vocab_size post_norm qk_norm
        qkv_bias rope_is_neox_style
    internlm2 head_dim
    minicpm3 num_experts
    minicpm_sala linear_backend num_experts rope_parameters
    phi3small head_dim intermediate_size rope_parameters
    nanbeige emb_neighbor_num enable_depth_attention enable_double_loop_split enable_h_res_identity
        enable_hyper_connection enable_mhc insert_ngram_layer_idx loop_middle_layers loop_num loop_share_kv
        mlp_bias ngram_insert_all_layers qk_layernorm rope_parameters
    opt head_dim intermediate_size num_key_value_heads
    gpt_bigcode hidden_size intermediate_size max_position_embeddings num_attention_heads num_hidden_layers
        num_key_value_heads head_dim
    gptj hidden_size intermediate_size max_position_embeddings num_attention_heads num_hidden_layers
        num_key_value_heads head_dim rotary
    gpt2 hidden_size intermediate_size max_position_embeddings num_attention_heads num_hidden_layers
        num_key_value_heads head_dim
    chatglm intermediate_size max_position_embeddings num_hidden_layers vocab_size
    inkling_model conv_kernel_size layer_types max_position_embeddings mlp_layer_types model_max_length
        moe_intermediate_size
    muse_spark_text inference_moe_w13_interleaved num_shared_experts
    interns1_pro_text dual_chunk_attention_config num_local_experts router_n_groups
    internlm3 bias qkv_bias
    iquest_q1 quantization_config rope_parameters use_over_encoding
    k2_horizon xllm_source_router_gemm_partitions
    mllama_text_model attention_bias bias head_dim mlp_bias original_max_position_embeddings qkv_bias
        rope_is_neox_style
    moss_vl_text rope_parameters
    jet_nemotron head_dim rope_parameters
    iquestloopcoder bias clip_qkv rope_is_neox_style rope_parameters
    iquestcoder bias clip_qkv original_max_position_embeddings rope_is_neox_style use_sliding_window
    cohere head_dim model_max_length
    cohere2 head_dim model_max_length sliding_window_pattern
    cohere2_moe first_k_dense_replace model_max_length rope_parameters
    hy_v4 enable_ihc enable_lm_head_fp32 gated_mla gating_type learnable_sink num_experts num_local_experts
        num_shared_experts
    hy_v3 first_k_dense_replace num_local_experts qk_norm route_norm use_qk_norm
    laguna moe_router_score_func num_local_experts
    afmoe n_group route_norm score_func
    mimo_v2_flash add_full_attention_sink_bias add_swa_attention_sink_bias context_len hybrid_layer_pattern
        layernorm_epsilon moe_layer_freq moe_router_dtype n_shared_experts num_experts num_local_experts
        num_shared_experts scale_emb scoring_func sliding_window_size swa_head_dim swa_num_attention_heads
        swa_num_key_value_heads swa_rope_theta swa_v_head_dim topk_method
    lfm2 block_ff_dim head_dim tie_embedding
    lfm2_moe head_dim tie_embedding
    granitemoehybrid head_dim layers_block_type num_experts
    bailing_hybrid full_attention_type lightning_layerwise_decay linear_backend linear_rope
        moe_shared_expert_intermediate_size norm_topk_prob quantization_config rotary_dim
        short_conv_kernel_size use_linear_silu use_mla_nope using_split_qkv_in_self_attention
    bailing_hybrid_v3 expert_swiglu_limit_list full_attention_type gated_attention_proj_granularity_type
        linear_conv_kernel_dim linear_head_dim linear_num_heads model_max_length moe_renormalize
        moe_router_enable_expert_bias moe_shared_expert_intermediate_size multi_gate no_kda_lora
        num_expert_group num_experts num_experts_per_token num_shared_experts q_lora_rank
        quantization_config rope_interleave router_dtype router_type score_function scoring_func
        share_expert_swiglu_limit_list topk_method use_bias use_mla_nope use_qkv_bias video_rope
    dots3_note_text mlp_layer_types num_experts num_local_experts num_shared_experts rope_parameters
    step3_text hidden_act max_position_embeddings n_routed_experts num_experts rope_parameters
        tie_word_embeddings
    gigachat3_5 attention_type linear_attn_o_norm_eps linear_gating_type linear_use_legacy_qkvz_layout
        linear_use_short_conv num_krope_heads
    falcon_h1 head_dim layer_types layers_block_type
    longcat_flash attention_method disable_quant_module index_head_dim index_n_heads index_topk
        intermediate_size mla_scale_kv_lora mla_scale_q_lora moe_intermediate_size ngram_vocab_size_ratio
        num_experts_per_tok num_hidden_layers num_local_experts oe_vocab_size_ratio quantization_config
        rounter_params_dtype router_bias zero_expert_type
    kimi_linear activation_situ_beta activation_situ_linear_beta attn_res_block_size
        first_k_dense_replace latent_moe_use_norm linear_attn_config logit_scale mamba_ssm_dtype
        mla_use_nope mla_use_output_gate model_max_length moe_layer_freq moe_renormalize
        moe_router_activation_func num_expert_group num_experts num_experts_per_token
        num_shared_experts routed_expert_hidden_size topk_method use_grouped_topk
    kimi_k3_text attention_bias layer_types linear_conv_kernel_dim linear_head_dim linear_num_heads
        logit_scale n_routed_experts num_experts_per_tok quantization_config routing_method_type
"""


def _beside() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in _BESIDE.replace("\n        ", " ").splitlines():
        name, *read = line.split() or [""]
        found[name] = {*read}
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_file_says_beside_its_config_class_is_read(name: str) -> None:
    reading = Fields(config_file(name), FAMILIES[name].defaults)
    FAMILIES[name].read(reading)
    own = {field.name for field in fields(config_class(name))}
    assert reading.seen - own - _USUAL == _beside().get(name, set())


def _by_transformers(file: dict[str, Any]) -> ModelConfig:
    """Without what is named because SGLang's own config class takes it otherwise."""
    model = model_config(file)
    return replace(model, obstacles=()) if file["model_type"] in _OF_SGLANG else model


@pytest.mark.parametrize("name", FAMILIES)
def test_a_field_that_is_left_out_is_as_its_config_class_says(name: str) -> None:
    needed = NEEDED.get(name, {})
    told = {*_SIZES, *_OWN_SIZES, *needed}
    sizes = {one: value for one, value in config_file(name).items() if one in told}
    width = next(one for one in ("hidden_size", "d_model", "n_embd") if one in sizes)
    twice_as_wide = {**sizes, width: 2 * sizes[width], **_AS_WIDE.get(name, {})}
    for told in (sizes, twice_as_wide):
        said = _by_transformers(config_file(name, **told))
        assert _by_transformers({"model_type": name, **told}) == said


_KIMIS = {
    **{f"{one}_size": 64 for one in ("intermediate", "moe_intermediate")},
    **dict.fromkeys(("num_experts", "num_experts_per_token", "num_shared_experts"), 1),
    **dict.fromkeys(("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 32),
    **{"routed_scaling_factor": 2.0, "rms_norm_eps": 1e-5, "model_max_length": 4096},
    **{"first_k_dense_replace": 1, "linear_attn_config": delta_layers([1])},
}


@pytest.mark.parametrize("left_out", [None, *_KIMIS])
def test_what_sglang_takes_otherwise_than_transformers_is_told(left_out: str | None) -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320}
    told = {name: value for name, value in _KIMIS.items() if name != left_out}
    obstacles = model_config({"model_type": "kimi_linear", **sizes, **told}).obstacles
    assert [left_out in why for why in obstacles[:1] if left_out] == [True] * bool(left_out)
    assert bool(obstacles) is bool(left_out)


@pytest.mark.parametrize("name", FAMILIES)
def test_each_field_left_out_alone(name: str) -> None:
    whole = config_file(name)
    for field in _optional(name):
        if not is_taken((name, field)):
            continue
        file = {one: value for one, value in whole.items() if one != field}
        kept = {one: value for one, value in file.items() if one != "model_type"}
        try:
            said = config_file(name, **kept)
        except (TypeError, ValueError):
            continue  # transformers refuses it as well
        assert _by_transformers(file) == _by_transformers(said), field


@pytest.mark.parametrize(
    "told",
    [
        {},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 2.0,
                "original_max_position_embeddings": 131072,
                "low_freq_factor": 1.0,
                "high_freq_factor": 32.0,
            },
            "swiglu_limits": [*[0.0] * 43, 7.0, 7.0, *[0.0] * 3],
            "swiglu_limits_shared": [*[0.0] * 44, 16.0, *[0.0] * 3],
        },
    ],
)
def test_step_as_published_is_what_transformers_makes_of_it(told: dict[str, Any]) -> None:
    file = {**published()["stepfun-ai/Step-3.5-Flash"].config, **told}
    rewritten = config_class("step3p5")(**json.loads(json.dumps(file))).to_dict()
    model = model_config(file)
    assert model == _by_transformers({**json.loads(json.dumps(rewritten)), "model_type": "step3p5"})
    assert not model.obstacles and model.attention["sliding"].num_heads == 96
    assert bool(model.caps) is bool(told)


def _mimo_as_published() -> dict[str, Any]:
    told: dict[str, Any] = json.loads((DATA / "published_families.json").read_text())[
        "XiaomiMiMo/MiMo-V2-Flash"
    ]
    return {name: value for name, value in told.items() if name != "quantization_config"}


def test_mimo_as_published_is_what_transformers_makes_of_it() -> None:
    file = _mimo_as_published()
    rewritten = config_class("mimo_v2_flash")(**json.loads(json.dumps(file))).to_dict()
    written = {name: value for name, value in rewritten.items() if name in config_file("mimo_v2_flash")}
    assert _by_transformers({**written, "model_type": "mimo_v2_flash"}) == model_config(file)


def test_mimo_has_heads_a_base_and_a_window_of_each_kind() -> None:
    own = {"swa_num_attention_heads": 32, "swa_num_key_value_heads": 2, "swa_head_dim": 128}
    own |= {"swa_v_head_dim": 96, "swa_rope_theta": 500, "sliding_window_size": 64}
    own |= {"add_swa_attention_sink_bias": False, "add_full_attention_sink_bias": True}
    model = model_config({**_mimo_as_published(), **own})
    full, sliding = model.attention["full"], model.attention["sliding"]
    assert (full.num_heads, full.num_kv_heads, full.head_dim, full.value_width) == (64, 4, 192, 128)
    assert (sliding.num_heads, sliding.num_kv_heads, sliding.head_dim, sliding.value_width) == (
        32,
        2,
        128,
        96,
    )
    assert full.rope is not None and (full.rope.dim, full.rope.theta) == (64, 5e6)
    assert sliding.rope is not None and (sliding.rope.dim, sliding.rope.theta) == (42, 500)
    assert (full.window, sliding.window, full.sinks, sliding.sinks) == (None, 65, True, False)
    assert model.obstacles == ()


_WITH_ACTIVATION = [name for name in FAMILIES if _ACTIVATION.get(name, "hidden_act") in config_file(name)]


def test_which_families_have_one_activation_that_is_not_told() -> None:
    never = {"lfm2", "lfm2_moe", "grok", "dbrx", "qwen", "spark2_5", "step3_text", "chatglm"}
    assert FAMILIES.keys() - _WITH_ACTIVATION == never


@pytest.mark.parametrize("name", _WITH_ACTIVATION)
def test_no_other_activation_is_computed_silently(name: str) -> None:
    file, field = config_file(name), _ACTIVATION.get(name, "hidden_act")
    for act in {"gelu", "relu", "gelu_pytorch_tanh", 7} - {file[field], *_ALSO.get(name, ())}:
        assert any(f"{field} is" in why for why in model_config({**file, field: act}).obstacles)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "qwen2_moe"])
@pytest.mark.parametrize("told", [{"max_window_layers": most} for most in range(7)] + [{}])
def test_layers_behind_a_window_are_those_of_the_config_class(name: str, told: dict[str, int]) -> None:
    window = {"use_sliding_window": True, "sliding_window": 8, "num_hidden_layers": 6 if told else 30}
    file = config_file(name, **window, **told)
    kinds = tuple(one.removesuffix("_attention") for one in file.pop("layer_types"))
    if not told:
        del file["max_window_layers"]
    model = model_config(file)
    assert model.attention_kinds == kinds
    assert {kind: one.window for kind, one in model.attention.items()} == {
        kind: 8 if kind == "sliding" else None for kind in kinds
    }


_GROWS = {"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    "name", sorted(FAMILIES.keys() - {"step3p5", "mimo_v2_flash", "deepseek_v4", "beam"})
)  # kinds with one each
def test_a_base_that_is_not_told_is_that_of_the_config_class(name: str) -> None:
    told = {"rope_type": "default", **(_GROWS if name in ("ministral3", "mistral4") else {})}
    said = config_file(name, rope_parameters=told)
    assert _by_transformers({**said, "rope_parameters": told}) == _by_transformers(said)


@pytest.mark.parametrize(("name", "share"), [("phi3", 0.75), ("phi3", 1.0), ("mixtral", 1.0)])
def test_a_share_of_a_head_is_turned_as_it_is_told(name: str, share: float) -> None:
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share}
    model = model_config({**config_file(name), "rope_parameters": rope})
    attention = model.main_attention
    assert attention.rope is not None and attention.rope.dim == attention.head_dim * share
    assert model.obstacles == ()


def test_steps_kv_heads_are_called_groups_where_it_is_published() -> None:
    file = published()["stepfun-ai/Step-3.5-Flash"].config
    told = model_config({**file, "num_attention_groups": 4, "attention_other_setting": {}}).attention
    assert {kind: one.num_kv_heads for kind, one in told.items()} == {"full": 4, "sliding": 4}


def test_steps_sparse_layers_are_listed_or_written_out() -> None:
    file = published()["stepfun-ai/Step-3.5-Flash"].config
    kinds = [
        model_config({**file, "moe_layers_enum": told}).layer_kinds for told in ("4, 6", [4, 6], ["4", "6"])
    ]
    assert kinds[0] == kinds[1] == kinds[2]
    assert [i for i, kind in enumerate(kinds[0]) if kind == "moe"] == [4, 6]


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        ("step3p5", {"mlp_layer_types": None, "moe_layers_enum": [4, "x"]}, "moe_layers_enum is"),
        ("mimo_v2_flash", {"moe_layer_freq": 1}, "moe_layer_freq is"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern is"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 2] * 24}, "hybrid_layer_pattern is"),
        ("mimo_v2_flash", {"attention_value_scale": "x"}, "attention_value_scale is"),
        ("hunyuan_v1_moe", {"moe_topk": []}, "moe_topk is"),
        ("hunyuan_v1_moe", {"moe_topk": [2, 0]}, "moe_topk is"),
        ("hunyuan_v1_moe", {"moe_topk": [2, True]}, "moe_topk is"),
        ("hunyuan_v1_moe", {"num_experts": 1 << 24}, "num_experts is"),
        ("hunyuan_v1_dense", {"head_dim": 3, "rope_scaling": {"type": "dynamic", "alpha": 9.0}}, "alpha is"),
        ("hunyuan_v1_dense", {"rope_scaling": {"type": "dynamic", "alpha": -9.0}}, "alpha is"),
        (
            "qwen2_vl_text",
            {"rope_parameters": {"rope_type": "default", "mrope_section": [16, "x"]}},
            "mrope_section",
        ),
        (
            "qwen2_vl_text",
            {"rope_parameters": {"rope_type": "default", "mrope_section": [16, 0]}},
            "mrope_section",
        ),
    ],
)
def test_a_list_or_a_number_that_is_none_is_refused_by_name(
    name: str, told: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**config_file(name), **told})


def test_which_ling_it_is_is_told_by_its_architecture() -> None:
    first, second = ["BailingMoeForCausalLM"], ["BailingMoeV2ForCausalLM"]
    file = config_file("bailing_moe_v2", hidden_size=4096)
    sizes = {one: file[one] for one in (*_SIZES, "norm_topk_prob")}
    named = model_config({**sizes, "model_type": "bailing_moe_v2"})
    told = {**sizes, "model_type": "bailing_moe"}
    assert model_config({**told, "architectures": second}) == replace(named, model_type="bailing_moe")
    with pytest.raises(ConfigError, match="num_key_value_heads is 0"):
        model_config({**told, "architectures": first})


@pytest.mark.parametrize(
    ("name", "told", "routed"),
    [
        ("bailing_moe_v2", {}, True),
        ("bailing_moe_v2", {"norm_topk_prob": False}, False),
        ("bailing_moe", {}, True),
        ("bailing_moe", {"norm_topk_prob": False}, False),
    ],
)
def test_lings_routers_are_told_to_kernels_that_route(name: str, told: dict[str, Any], routed: bool) -> None:
    assert kernels_route(model_config({**config_file(name), **told})) is routed


def test_hunyuans_heads_of_four_may_be_stretched() -> None:
    told = {"head_dim": 4, "rope_scaling": {"type": "dynamic", "alpha": 9.0}, "rope_theta": 10.0}
    rope = model_config({**config_file("hunyuan_v1_dense"), **told}).main_attention.rope
    assert rope is not None and rope.theta == 10.0 * 9.0**2
