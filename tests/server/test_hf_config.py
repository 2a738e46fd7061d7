"""A config.json in each family's spelling, and the shape that is built from it."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.checkpoint import Checkpoint
from runtime.server.classes import config_class
from runtime.server.config import IndexerConfig, ModelConfig
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.hf_config import CONFIG_CLASSES, model_config
from runtime.server.releases import NEWEST
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
GPT_OSS = {
    "model_type": "gpt_oss",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "intermediate_size": 32,
    "sliding_window": 128,
}


def _read(**members: Any) -> ModelConfig:
    return model_config({**SMALL, **members})


def test_what_a_config_leaves_out() -> None:
    plain = _read()
    assert (plain.num_kv_heads, plain.head_dim, plain.intermediate_size) == (4, 16, 0)
    assert (plain.max_position, plain.rms_eps, plain.rope_theta) == (4096, 1e-6, 10000.0)
    assert plain.layer_kinds == ("dense",) * 4 and plain.attention_kinds == ("full",) * 4
    assert not (plain.qk_norm or plain.attention_bias or plain.output_bias or plain.attention_sinks)
    assert not (plain.tie_word_embeddings or plain.rope_interleave)
    assert (plain.moe, plain.mla, plain.sliding_window, plain.dtype) == (None, None, None, "bfloat16")


def test_what_a_config_says() -> None:
    said = _read(
        num_key_value_heads=2, head_dim=32, intermediate_size=96, max_position_embeddings=99,
        rms_norm_eps=1e-5, rope_theta=5.0, tie_word_embeddings=True, attention_bias=True,
    )  # fmt: skip
    assert (said.num_kv_heads, said.head_dim, said.intermediate_size, said.max_position) == (2, 32, 96, 99)
    assert (said.rms_eps, said.rope_theta, said.rope_parameters["rope_theta"]) == (1e-5, 5.0, 5.0)
    assert said.tie_word_embeddings and said.attention_bias and said.output_bias


@pytest.mark.parametrize(
    ("members", "parameters"),
    [
        ({}, {"rope_type": "default", "rope_theta": 10000.0}),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, {"rope_type": "linear", "factor": 2}),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, {"rope_type": "yarn", "factor": 2}),
        ({"rope_parameters": {"rope_theta": 7.0, "rope_type": "x"}}, {"rope_theta": 7.0, "rope_type": "x"}),
    ],
)
def test_either_spelling_of_rope(members: dict[str, Any], parameters: dict[str, Any]) -> None:
    found = _read(**members).rope_parameters
    assert {name: found[name] for name in parameters} == parameters and "type" not in found


def test_what_only_some_families_have() -> None:
    families = {
        kind: {**V3, **GPT_OSS, "model_type": kind, "attention_bias": True} for kind in CONFIG_CLASSES
    }
    assert {kind for kind in families if _read(**families[kind]).qk_norm} == {"qwen3", "qwen3_moe"}
    biased = {kind for kind in families if _read(**families[kind]).output_bias}
    assert biased == {"llama", "qwen3", "qwen3_moe", "gpt_oss"}
    assert _read(model_type="glm4_moe", use_qk_norm=True).qk_norm
    assert _read(**V3).rope_interleave and not _read(**V3, rope_interleave=False).rope_interleave
    assert _read(**GPT_OSS).attention_sinks and not _read(**V3).attention_sinks
    assert not _read(model_type="glm4_moe", attention_bias=True).output_bias


@pytest.mark.parametrize(
    ("members", "window"),
    [
        ({"sliding_window": 128}, None),
        ({"sliding_window": 128, "use_sliding_window": False}, None),
        ({"sliding_window": 128, "use_sliding_window": True}, 128),
        (GPT_OSS, 128),
    ],
)
def test_a_sliding_window(members: dict[str, Any], window: int | None) -> None:
    assert _read(**members).sliding_window == window


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
        ({"layer_types": ["sliding_attention", "full_attention"] * 2}, ("sliding", "full") * 2),
        (GPT_OSS, ("sliding", "full") * 2),
        ({**GPT_OSS, "layer_types": ["full_attention"] * 4}, ("full",) * 4),
    ],
)
def test_which_layers_slide(members: dict[str, Any], kinds: tuple[str, ...]) -> None:
    assert _read(**members).attention_kinds == kinds


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
    sparse = _read(**V3, index_n_heads=2, index_head_dim=32, index_topk=64).mla
    assert sparse is not None and sparse.indexer == IndexerConfig(2, 32, 64)
    assert _read(**LATENTS).mla is None


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"model_type": "mamba"}, "'mamba' is not supported"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"indexer_types": ["full", "shared"]}, "share an indexer"),
        ({"index_topk_freq": 2}, "share an indexer"),
    ],
)
def test_what_this_runtime_cannot_build(members: dict[str, Any], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        _read(**members)
    assert _read(indexer_types=["full"], index_topk_freq=1).model_type == "llama"


@pytest.mark.parametrize("value", [None, "64", True, 0, -1, 6.5])
def test_a_size_is_a_positive_whole_number(value: object) -> None:
    for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        with pytest.raises(ConfigError, match=f"{name} is"):
            _read(**{name: value})


@pytest.mark.parametrize("kind", CONFIG_CLASSES)
def test_a_config_class_is_the_one_in_the_servers_key(kind: str) -> None:
    served = Checkpoint({**SMALL, "model_type": kind, "architectures": ["X"]})
    assert CONFIG_CLASSES[kind] == config_class(served, NEWEST)


def test_only_gpt_oss_has_a_pool_of_sliding_layers() -> None:
    assert sliding_layers(_read(**GPT_OSS), range(4)) == [0, 2]
    assert sliding_layers(_read(**GPT_OSS), [0, 2]) == [], "none where all slide"
    slides = {"layer_types": ["sliding_attention", "full_attention"] * 2}
    assert sliding_layers(_read(**slides), range(4)) == []
