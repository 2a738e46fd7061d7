"""A config.json in each family's spelling, and the shape that is built from it."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from runtime.server.config import ModelConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import AttentionConfig, IndexerConfig, RopeConfig
from runtime.server.sizing import sliding_layers

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 128,
}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LATENTS = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
V3 = {"model_type": "deepseek_v3", **LATENTS, **ROUTED}
_IN_GROUPS = {"n_group": 2, "topk_group": 1}
GPT_OSS = {
    "model_type": "gpt_oss",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
    "sliding_window": 128,
}
GLM5 = {**V3, "model_type": "glm_moe_dsa", "q_lora_rank": 24}
TURNS = ["sliding_attention", "full_attention"] * 2


def _read(**members: Any) -> ModelConfig:
    return model_config({**SMALL, **members})


def _attention(**members: Any) -> AttentionConfig:
    [found] = _read(**members).attention.values()
    return found


def test_what_a_config_leaves_out() -> None:
    plain = _read()
    assert (plain.intermediate_size, plain.max_position, plain.rms_eps) == (11008, 2048, 1e-6)
    assert plain.layer_kinds == ("dense",) * 4 and plain.attention_kinds == ("full",) * 4
    assert (plain.tie_word_embeddings, plain.moe, plain.mla, plain.dtype) == (False, None, None, "bfloat16")
    rope = RopeConfig(16, 10000.0, 2048, parameters={"rope_type": "default", "rope_theta": 10000.0})
    assert plain.attention == {"full": AttentionConfig(4, 4, 16, rope, scale=0.25)}


def test_what_a_config_says() -> None:
    said = _read(
        num_key_value_heads=2, head_dim=64, intermediate_size=96, max_position_embeddings=99,
        rms_norm_eps=1e-5, rope_theta=5.0, tie_word_embeddings=True, attention_bias=True,
    )  # fmt: skip
    assert (said.intermediate_size, said.max_position, said.rms_eps) == (96, 99, 1e-5)
    attention = said.main_attention
    assert (attention.num_kv_heads, attention.head_dim, attention.scale) == (2, 64, 0.125)
    assert attention.rope is not None and (attention.rope.theta, attention.rope.max_position) == (5.0, 99)
    assert said.tie_word_embeddings and attention.bias and attention.output_bias


@pytest.mark.parametrize(
    ("members", "parameters"),
    [
        ({}, {"rope_type": "default", "rope_theta": 10000.0}),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, {"rope_type": "linear", "factor": 2}),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2}},
            {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 2048},
        ),
        ({"rope_parameters": {"rope_theta": 7.0}}, {"rope_theta": 7.0, "rope_type": "default"}),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 7.0}, {"rope_theta": 7.0}),
    ],
)
def test_either_spelling_of_rope(members: dict[str, Any], parameters: dict[str, Any]) -> None:
    rope = _attention(**members).rope
    assert rope is not None and "type" not in rope.parameters
    assert {name: rope.parameters[name] for name in parameters} == parameters


@pytest.mark.parametrize(
    ("members", "dim"),
    [
        ({}, 8),
        ({"partial_rotary_factor": 0.25}, 4),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75}}, 12),
        ({"partial_rotary_factor": 0.25, "rope_scaling": {"type": "linear", "factor": 2}}, 4),
    ],
)
def test_a_share_of_each_head_is_turned(members: dict[str, Any], dim: int) -> None:
    rope = _attention(**{**ROUTED, **members}, model_type="glm4_moe").rope
    assert rope is not None and rope.dim == dim
    if members:
        [why] = _read(**members).obstacles
        assert re.search(r"partial_rotary_factor is 0\.\d+: models of this family turn whole heads", why)


_WITHOUT_BIAS = {
    "mistral",
    "mixtral",
    "minimax_m2",
    "ernie4_5",
    "ernie4_5_moe",
    "exaone4",
    "exaone_moe",
    "phi3",
    "nemotron_h",
    *("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "deepseek_v3", "kimi_k2", "glm4_moe_lite"),
}


_HYBRID = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}
_NORMED = {"qwen3", "qwen3_moe", "exaone4", "exaone_moe", "mellum", *_HYBRID}
_BIASED_BEFORE_ALONE = {"qwen2", "qwen2_moe", "glm4", "glm4_moe"}
_ALIKE = {"llama", "minimax_m2", "olmo2", "olmoe", "gpt_oss", "deepseek_v3", "kimi_k2", "glm4_moe_lite"}


def test_what_only_some_families_have() -> None:
    kinds = _WITHOUT_BIAS | _NORMED | _BIASED_BEFORE_ALONE | _ALIKE
    told = {kind: {**V3, **GPT_OSS, "attention_bias": True, "q_lora_rank": 8} for kind in kinds}
    read = {kind: _read(**{**told[kind], "model_type": kind}).main_attention for kind in kinds}
    assert {kind for kind, one in read.items() if one.qk_norm == "head"} == _NORMED
    assert {kind for kind, one in read.items() if not one.bias} == _WITHOUT_BIAS
    unlike = {kind for kind, one in read.items() if one.bias and not one.output_bias}
    assert unlike == _BIASED_BEFORE_ALONE
    assert {kind for kind, one in read.items() if one.qk_norm == "all"} == {"minimax_m2", "olmoe"}
    assert {kind for kind, one in read.items() if one.sinks} == {"gpt_oss"}
    assert _attention(model_type="qwen2").bias and not _attention(model_type="qwen3").bias
    assert _attention(**ROUTED, model_type="glm4_moe", use_qk_norm=True).qk_norm == "head"
    for interleaved in (True, False):
        rope = _attention(**V3, rope_interleave=interleaved).rope
        assert rope is not None and rope.interleaved == interleaved


@pytest.mark.parametrize(
    ("members", "window"),
    [
        ({"sliding_window": 128}, None),
        ({"model_type": "qwen3", "sliding_window": 128}, None),
        ({"model_type": "qwen3", "sliding_window": 128, "use_sliding_window": True}, None),
        (
            {"model_type": "qwen3", "sliding_window": 9, "use_sliding_window": True, "max_window_layers": 0},
            9,
        ),
        ({"model_type": "qwen3_moe", **EXPERTS, "sliding_window": 9}, None),
        ({"model_type": "qwen3_moe", **EXPERTS, "sliding_window": 9, "use_sliding_window": True}, 9),
        ({"model_type": "mixtral", "sliding_window": 9}, 9),
        ({"model_type": "mixtral"}, None),
        ({"model_type": "mistral"}, 4096),
        ({"model_type": "mistral", "sliding_window": None}, None),
    ],
)
def test_a_window_for_all_layers_or_none(members: dict[str, Any], window: int | None) -> None:
    read = _read(**members)
    assert [one.window for one in read.attention.values()] == [window]
    assert set(read.attention_kinds) == {"full" if window is None else "sliding"}


@pytest.mark.parametrize(
    ("members", "kinds"),
    [
        ({"model_type": "qwen3_moe", **EXPERTS}, "MMMM"),
        ({"model_type": "qwen3_moe", **EXPERTS, "decoder_sparse_step": 2}, "dMdM"),
        ({"model_type": "qwen3_moe", **EXPERTS, "mlp_only_layers": [0, 3]}, "dMMd"),
        ({**V3, "first_k_dense_replace": 1}, "dMMM"),
        ({**V3, "first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddMd"),
        ({**V3, "mlp_layer_types": ["dense", "sparse", "sparse", "dense"]}, "dMMd"),
        (GPT_OSS, "MMMM"),
    ],
)
def test_which_layers_have_experts(members: dict[str, Any], kinds: str) -> None:
    found = _read(**members)
    assert "".join("M" if kind == "moe" else "d" for kind in found.layer_kinds) == kinds
    assert found.num_moe_layers == kinds.count("M")


@pytest.mark.parametrize(
    ("members", "kinds"),
    [
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 3},
            ("full", "full", "full", "sliding"),
        ),
        (
            {"model_type": "qwen3", "use_sliding_window": True, "layer_types": TURNS},
            ("sliding", "full") * 2,
        ),
        (GPT_OSS, ("sliding", "full") * 2),
        ({**GPT_OSS, "layer_types": ["full_attention"] * 4}, ("full",) * 4),
    ],
)
def test_which_layers_slide(members: dict[str, Any], kinds: tuple[str, ...]) -> None:
    read = _read(**members)
    assert read.attention_kinds == kinds
    assert all((read.layer_attention(i).window is None) == (kind == "full") for i, kind in enumerate(kinds))


def test_layers_that_slide_need_a_window() -> None:
    with pytest.raises(ConfigError, match="without a sliding_window"):
        _read(model_type="qwen3", layer_types=TURNS)


def test_experts_of_qwen() -> None:
    moe = _read(model_type="qwen3_moe", **EXPERTS, norm_topk_prob=True).moe
    assert moe is not None and (moe.num_experts, moe.top_k, moe.intermediate_size) == (8, 2, 32)
    assert (moe.scoring, moe.renormalize, moe.correction_bias) == ("softmax", True, False)
    assert (moe.shared_intermediate_size, moe.num_groups, moe.top_k_groups) == (0, 1, 1)
    assert (moe.routed_scaling_factor, moe.router_bias, moe.expert_bias) == (1.0, False, False)
    assert (moe.swiglu_alpha, moe.swiglu_limit) == (None, None)
    unsaid = _read(model_type="qwen3_moe", **EXPERTS).moe
    assert unsaid is not None and not unsaid.renormalize


def test_experts_of_deepseek_and_glm() -> None:
    own = {"n_shared_experts": 2, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5}
    for kind in ("deepseek_v3", "glm4_moe", "deepseek_v32", "glm_moe_dsa"):
        moe = _read(**{**V3, "model_type": kind}, **own).moe
        assert moe is not None and (moe.scoring, moe.correction_bias) == ("sigmoid", True)
        assert (moe.shared_intermediate_size, moe.routed_scaling_factor) == (64, 2.5)
        assert (moe.num_groups, moe.top_k_groups) == (4, 2)


def test_experts_of_mixtral_and_gpt_oss() -> None:
    mixtral = _read(**{**GPT_OSS, "model_type": "mixtral"}).moe
    assert mixtral is not None and mixtral.renormalize and mixtral.intermediate_size == 32
    assert not (mixtral.router_bias or mixtral.expert_bias) and mixtral.swiglu_limit is None
    oss = _read(**GPT_OSS).moe
    assert oss is not None and oss.renormalize and oss.router_bias and oss.expert_bias
    assert (oss.swiglu_alpha, oss.swiglu_limit, oss.scoring) == (1.702, 7.0, "softmax")
    told = _read(**GPT_OSS, swiglu_alpha=1.5, swiglu_limit=6.0).moe
    assert told is not None and (told.swiglu_alpha, told.swiglu_limit) == (1.5, 6.0)


def test_latents_and_their_indexer() -> None:
    mla = _read(**V3, q_lora_rank=24).mla
    assert mla is not None and (mla.q_lora_rank, mla.kv_lora_rank, mla.indexer) == (24, 16, None)
    assert (mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.v_head_dim) == (8, 4, 8)
    assert (mla.qk_head_dim, mla.cache_dim) == (12, 20)
    told = {"q_lora_rank": 24, "index_n_heads": 2, "index_head_dim": 32, "index_topk": 64}
    for kind, interleaved in (("deepseek_v32", False), ("glm_moe_dsa", True)):
        sparse = _read(**{**V3, "model_type": kind}, **told).mla
        assert sparse is not None and sparse.indexer == IndexerConfig(2, 32, 64, interleaved)
    assert _read(**LATENTS).mla is None


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"mlp_bias": True}, "mlp_bias is True: this runtime computes False"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu': this runtime computes 'silu'"),
        ({**V3, **_IN_GROUPS, "scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({**GLM5, "rope_interleave": False}, "rope_interleave is False"),
        ({**GLM5, "indexer_types": ["full", "shared"]}, "share an indexer"),
        ({**GLM5, "index_topk_pattern": "FFSF"}, "share an indexer"),
        ({**GLM5, "index_topk_freq": 2}, "share an indexer"),
    ],
)
def test_what_this_runtime_cannot_compute(members: dict[str, Any], said: str) -> None:
    [why] = _read(**members).obstacles
    assert said in why
    assert _read(**GLM5, indexer_types=["full"] * 4, index_topk_freq=1).obstacles == ()


def test_a_rope_that_others_stretch_otherwise_has_sizes_alone() -> None:
    model = _read(rope_scaling={"type": "dynamic", "factor": 2})
    assert model.obstacles == ()
    [why] = model.uncomputed
    assert "rope_type is 'dynamic'" in why


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"model_type": "rwkv"}, "'rwkv' is not supported"),
        ({**GPT_OSS, "layer_types": ["chunked_attention"] * 4}, "layer_types names 'chunked_attention'"),
    ],
)
def test_layers_that_this_runtime_does_not_know(members: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        _read(**members)


@pytest.mark.parametrize(
    "members",
    [
        {"rms_norm_eps": "1e-6"},
        {"tie_word_embeddings": "yes"},
        {"rope_scaling": [2]},
        {"rope_parameters": {"rope_theta": -1.0}},
        {"rope_parameters": {"rope_type": "yarn"}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_fast": "x"}},
        {**ROUTED, "model_type": "glm4_moe", "partial_rotary_factor": 0},
        {**ROUTED, "model_type": "glm4_moe", "routed_scaling_factor": float("nan")},
        {"model_type": "qwen3", "layer_types": ["full_attention"]},
        {"model_type": "qwen3_moe", **EXPERTS, "mlp_only_layers": ["0"]},
        {**GLM5, "q_lora_rank": None},
        {"model_type": "step3p5", "attention_other_setting": {"num_attention_heads": {"a": 1}}},
    ],
)
def test_a_field_of_another_type_is_refused_by_name(members: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: "):
        _read(**members)


@pytest.mark.parametrize("block", [128, True, 0.5, "128", [128], [128, "128"], {"a": 1}])
def test_a_quantization_block_is_two_sizes(block: object) -> None:
    with pytest.raises(ConfigError, match=r"weight_block_size is .*: two sizes are needed"):
        _read(quantization_config={"quant_method": "fp8", "weight_block_size": block})


@pytest.mark.parametrize("value", [None, "64", True, 0, -1, 6.5])
def test_a_size_is_a_positive_whole_number(value: object) -> None:
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        with pytest.raises(ConfigError, match=f"{name} is"):
            _read(**{name: value})


def test_only_gpt_oss_has_a_pool_of_sliding_layers() -> None:
    assert sliding_layers(_read(**GPT_OSS), range(4)) == [0, 2]
    assert sliding_layers(_read(**GPT_OSS), [0, 2]) == [], "none where all slide"
    slides = {"model_type": "qwen3", "layer_types": TURNS, "use_sliding_window": True}
    assert sliding_layers(_read(**slides), range(4)) == []


def test_which_class_keeps_windows_apart_is_told_by_its_name() -> None:
    """is_hybrid_swa_model: Llama 4's text has two classes, and one of them is known there."""
    told = {"model_type": "llama4_text", "num_hidden_layers": 4, "num_local_experts": 4}
    whole, alone = (
        _read(**told, architectures=[f"Llama4For{one}"]) for one in ("ConditionalGeneration", "CausalLM")
    )
    assert sliding_layers(whole, range(4)) == [0, 1, 2] and not sliding_layers(alone, range(4))
    with pytest.raises(Unsupported, match="is_hybrid_swa, of which SGLang's Qwen3ForCausalLM"):
        _read(model_type="qwen3", architectures=["Qwen3ForCausalLM"], is_hybrid_swa=True)
    assert _read(**GPT_OSS, architectures=["GptOssForCausalLM"], is_hybrid_swa=True).windows_apart


@pytest.mark.parametrize(
    ("family", "first", "kinds"),
    [
        ("qwen2_moe", 3, ("sliding", "full", "sliding", "full")),
        ("qwen2_moe", 2, ("sliding", "full", "full", "full")),
        ("qwen2_moe", 0, ("full",) * 4),
        ("qwen2", 2, ("full", "full", "sliding", "sliding")),
        ("qwen2", 4, ("full",) * 4),
        ("qwen3", 1, ("full", "sliding", "sliding", "sliding")),
    ],
)
def test_layers_that_see_a_window_where_no_layer_types_say_so(
    family: str, first: int, kinds: tuple[str, ...]
) -> None:
    experts = {**EXPERTS, "shared_expert_intermediate_size": 32} if family == "qwen2_moe" else {}
    told: dict[str, Any] = {"model_type": family, "max_window_layers": first, "sliding_window": 8, **experts}
    assert _read(**told, use_sliding_window=True).attention_kinds == kinds
    assert _read(**told, use_sliding_window=False).attention_kinds == ("full",) * 4
    windows = {kind: one.window for kind, one in _read(**told, use_sliding_window=True).attention.items()}
    assert windows == {kind: 8 if kind == "sliding" else None for kind in kinds}


@pytest.mark.parametrize(
    ("stretched", "times"),
    [
        ({"factor": 40, "mscale_all_dim": 1.0}, (0.1 * math.log(40) + 1) ** 2),
        ({"factor": 40, "mscale_all_dim": 0.5}, (0.05 * math.log(40) + 1) ** 2),
        ({"factor": 1, "mscale_all_dim": 2.0}, 1.0),
        ({"factor": 0.5, "mscale_all_dim": 2.0}, 1.0),
        ({"factor": 40}, 1.0),
        ({"factor": 40, "mscale_all_dim": 0}, 1.0),
    ],
)
def test_yarn_adds_to_the_scale_of_latent_attention(stretched: dict[str, Any], times: float) -> None:
    told = _attention(**V3, rope_parameters={"rope_type": "yarn", **stretched}).scale
    assert told == pytest.approx(12**-0.5 * times)
    assert _attention(**V3).scale == pytest.approx(12**-0.5)


def test_exaone_turns_its_heads_where_no_layer_sees_a_window() -> None:
    whole = _read(model_type="exaone4", sliding_window=None)
    assert whole.attention_kinds == ("full",) * 4 and whole.main_attention.rope is not None
    mixed = _read(model_type="exaone4")
    assert mixed.attention_kinds == ("sliding", "sliding", "sliding", "full")
    assert [one.rope is None for one in mixed.attention.values()] == [False, True]


_LLAMA_4 = {"model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1,
            "intermediate_size": 64, "intermediate_size_mlp": 96}  # fmt: skip


@pytest.mark.parametrize(
    ("told", "kinds"),
    [
        ([1, 0, 1, 0], "sfsf"),
        ([1, 0, 1, 0, 1], "sfsf"),
        ([0, 0, 0, 0], "ffff"),
        (None, "sssf"),
        ([], "sssf"),
        ([1, 0, 1], None),
        ([2, 0, 1, 0], None),
        ("1010", None),
        (4, None),
    ],
)
def test_llama_4_sees_chunks_where_its_queries_turn(told: object, kinds: str | None) -> None:
    if kinds is None:
        with pytest.raises(ConfigError, match=r"no_rope_layers is .*: a 0 or 1 a layer is needed"):
            _read(**_LLAMA_4, no_rope_layers=told)
    else:
        found = _read(**_LLAMA_4, no_rope_layers=told).attention_kinds
        assert "".join(kind[0] for kind in found) == kinds
