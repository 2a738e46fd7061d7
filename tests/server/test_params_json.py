"""What SGLang makes of Mistral's own params.json, by mistral_utils.py of its releases."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import Growth
from runtime.server.params_json import config_of, is_read
from tests.memory.checkpoints import params

_LARGE = params()["mistralai/Mistral-Large-3-675B-Instruct-2512"]
_PATH = "/models/Mistral-Large-3"


@pytest.mark.parametrize(
    ("path", "is_so"),
    [
        ("mistralai/Mistral-Small-4-119B-2603", True),
        ("/data/mistral-large-3/", True),
        ("org/Leanstral-2603", True),
        ("org/Mistral-Medium-3.5-EAGLE", True),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", False),
        ("org/llama-eagle", False),
    ],
)
def test_the_path_says_which_file_is_read(path: str, is_so: bool) -> None:
    assert is_read(path) is is_so


def test_a_large_3_is_a_deepseek_behind_pixtral() -> None:
    made = config_of(_LARGE, _PATH)
    assert made["architectures"] == ["PixtralForConditionalGeneration"]
    text = made["text_config"]
    assert (text["model_type"], text["architectures"]) == ("deepseek_v3", ["MistralLarge3ForCausalLM"])
    assert (text["n_routed_experts"], text["scoring_func"], text["routing_method_type"]) == (
        128,
        "softmax",
        1,
    )
    assert text["rope_scaling"]["apply_yarn_scaling"] is False and text["rope_scaling"]["factor"] == 36
    static = {"quant_method": "fp8", "activation_scheme": "static"}
    assert made["quantization_config"] == text["quantization_config"] == static
    model = model_config(made)
    assert model.model_type == "mistral_large_3" and not model.obstacles and model.encoder is not None
    attention = model.main_attention
    assert attention.growth == Growth(0.1, 8192.0) and attention.scale == 192**-0.5


def test_a_length_that_is_not_told_is_sglangs() -> None:
    shorter = {
        name: value for name, value in _LARGE.items() if "max" not in name and name != "vision_encoder"
    }
    made = config_of(shorter, _PATH)
    assert (made["max_seq_len"], made["max_position_embeddings"]) == (128_000, 128_000)
    assert made["architectures"] == ["MistralLarge3ForCausalLM"]


@pytest.mark.parametrize(
    ("told", "architecture"),
    [
        ({"moe": None}, "MistralLarge3ForCausalLMEagle"),
        ({}, "MistralLarge3ForCausalLMEagle"),
        (
            {"moe": None, "kv_lora_rank": None, "q_lora_rank": None, "v_head_dim": None},
            "MistralForCausalLMEagle",
        ),
    ],
)
def test_a_draft_is_named(told: dict[str, Any], architecture: str) -> None:
    without = {name: value for name, value in _LARGE.items() if name != "vision_encoder"}
    made = config_of({**without, **told}, "Mistral-Large-3-Eagle")
    assert made["architectures"] == [architecture]
    with pytest.raises(Unsupported, match=f"{architecture} is not a draft that this runtime computes"):
        model_config(made)


def test_a_dense_one_is_no_llama_of_transformers() -> None:
    dense = {name: value for name, value in _LARGE.items() if name not in ("vision_encoder", "moe")}
    made = config_of(dense, _PATH)
    assert made["architectures"] == ["MistralForCausalLM"]
    assert "config.json: rope_is_neox_style is False" in model_config(made).obstacles[0]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"yarn": {**_LARGE["yarn"], "gamma": 1}}, "yarn has 'gamma'"),
        ({"llama_4_scaling": {"beta": 0.1}}, "without original_max_position_embeddings"),
        ({"quantization": {"qformat_weight": "int8"}}, "quantization has qformat_weight 'int8'"),
        ({"moe": {"num_experts": 8}}, "experts without shared ones"),
        ({"multimodal": {"whisper_model_args": {}}}, "multimodal"),
        ({"moe": 7}, "moe is 7: an object is needed"),
    ],
)
def test_what_sglang_ends_with_or_nobody_knows_is_refused(told: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of({**_LARGE, **told}, _PATH)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"n_group": 2}, "n_group is 2"),
        ({"routing_method_type": None}, "routing_method_type is not 1"),
        ({"scoring_func": "sigmoid"}, "scoring_func is 'sigmoid'"),
        ({"rope_scaling": {"rope_type": "deepseek_yarn", "factor": 2, "attn_factor": 3}}, "'attn_factor'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, "rope_type is 'linear'"),
    ],
)
def test_what_no_params_json_makes_is_named(told: dict[str, Any], said: str) -> None:
    text = config_of(_LARGE, _PATH)["text_config"]
    assert any(said in why for why in model_config({**text, **told}).obstacles)


def test_plain_angles_have_no_yarn() -> None:
    plain = {name: value for name, value in _LARGE.items() if name not in ("yarn", "vision_encoder")}
    attention = model_config(config_of(plain, _PATH)).main_attention
    assert attention.rope is not None and attention.rope.parameters["rope_type"] == "default"
    assert attention.scale == 192**-0.5
