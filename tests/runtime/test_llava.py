"""A LLaVA is known where its tower is Pixtral's, its text a Llama or a Mistral, and what it sees whole."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.runtime.families import config_json, make_reference


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"vision_config": {"model_type": "clip_vision_model"}},
            "of LLaVA's towers SGLang has layers of pixtral",
        ),
        ({"vision_config": {"rope_parameters": {"rope_type": "axial"}}}, "different kinds of Pixtral's rope"),
        ({"vision_config": None}, "vision_config: model_type is None: of LLaVA's towers"),
        ({"text_config": {"model_type": "qwen2"}}, "model_type is 'qwen2': known are llama and mistral"),
        ({"text_config": None}, "llava without a text_config"),
        ({"tie_word_embeddings": True}, "SGLang reads that of text_config, which has none"),
        ({"vision_feature_select_strategy": None}, "select_strategy is None: SGLang loads no weights but of"),
        ({"vision_feature_select_strategy": "default"}, "select_strategy is 'default'"),
        ({"vision_feature_layer": [-2, -1]}, r"vision_feature_layer is \[-2, -1\]: SGLang takes one layer's"),
        ({"mm_patch_merge_type": "spatial_unpad"}, "a parameter more"),
        ({"architectures": ["LlavaQwenForCausalLM"]}, "vocab_size is missing"),  # flat, where that serves
        ({"architectures": ["YiVLForCausalLM"]}, "architectures names YiVLForCausalLM"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    hf = config_json(make_reference("llava"))
    whole = {name: {**hf[name], **one} if isinstance(one, dict) else one for name, one in changes.items()}
    with pytest.raises(ConfigError, match=said):
        model_config({**hf, **whole})


@pytest.mark.parametrize("name", ["llava", "mistral3"])
def test_a_list_that_tells_a_layer_of_its_text_apart_is_named(name: str) -> None:
    """SGLang quantizes one that is called language_model.model.layers.0: its class does not call it so."""
    hf, blocks = config_json(make_reference(name)), {"quant_method": "fp8", "weight_block_size": [16, 16]}
    found = [
        model_config({**hf, "quantization_config": {**blocks, "ignored_layers": [listed]}}).obstacles
        for listed in (
            "language_model.model.layers.0.mlp.down_proj",
            "language_model.lm_head",
            "vision_tower",
        )
    ]
    assert "is told apart" in found[0][0] and not found[1] and not found[2]


def test_a_text_without_a_name_is_a_llama() -> None:
    hf = config_json(make_reference("llava"))
    text = {name: one for name, one in hf["text_config"].items() if name != "model_type"}
    assert model_config({**hf, "text_config": text}).model_type == "llama"
    assert model_config(hf).model_type == "mistral"
