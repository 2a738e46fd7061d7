"""A MiniCPM-V is known by its version, where its file tells all that SGLang asks for."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.server.captured_layers import captures_prefills
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import checkpoints
from tests.runtime.families import config_json, make_reference

PUBLISHED = {
    one.config["version"]: one.config
    for one in checkpoints()
    if "/minicpm-v-" in one.name and "version" in one.config
}


@pytest.mark.parametrize(
    ("version", "text", "frames"), [(2.6, "qwen2", False), (4.0, "llama", False), (4.5, "qwen3", True)]
)
def test_its_version_says_what_its_text_is(version: float, text: str, frames: bool) -> None:
    for told in (version, str(version)):
        model = model_config({**PUBLISHED[version], "version": told})
        assert model.model_type == text and model.encoder is not None
        named = {one.name: one.shape for one in model.encoder.weights}
        assert named["resampler.pos_embed"] == (70, 70, model.hidden_size)
        assert ("resampler.temporal_pos_embed" in named) == frames


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2.5}, "version is 2.5: SGLang has minicpmv 2.6, 4.0, 4.5"),
        ({"version": 4}, "version is 4: SGLang has"),
        ({"version": None}, "version is None: SGLang has"),
        ({"version": [4.5]}, r"version is \[4.5\]: SGLang has"),
        ({"rope_theta": ...}, "rope_theta is missing: what it is then, the checkpoint's own class says"),
        ({"drop_vision_last_layer": ...}, "drop_vision_last_layer is missing"),
        ({"query_num": ...}, "query_num is None: a positive whole number is needed"),
        ({"hidden_size": 385}, "hidden_size 385 is no multiple of its resampler's heads"),
        ({"hidden_size": 64}, "hidden_size 64 is no multiple"),
        ({"vision_config": {}}, "vision_config: hidden_size is None"),
        ({"vision_config": 4}, "vision_config is 4: an object is needed"),
        ({"architectures": ["MiniCPMO"]}, "architectures names MiniCPMO"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    told = {name: one for name, one in {**PUBLISHED[4.5], **changes}.items() if one is not ...}
    with pytest.raises(ConfigError, match=said):
        model_config(told)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"merge_kernel_size": [4, 4]}, r"merge_kernel_size is \[4, 4\]: SGLang folds two by two"),
        ({"vision_config": {"window_kernel_size": [1, 2]}}, r"window_kernel_size is \[1, 2\]: SGLang folds"),
        ({"merger_times": 0}, "merger_times is 0: a positive whole number is needed"),
        (
            {"text_config": {"model_type": "qwen3_5_moe_text"}},
            "SGLang has minicpmv4_6 with qwen3_5_text alone",
        ),
        ({"text_config": {"hidden_size": 64}}, "model_type is missing"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "quantization_config: of MiniCPM-V this runtime has",
        ),
    ],
)
def test_what_folds_otherwise_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**config_json(make_reference("minicpmv4_6")), **changes})


@pytest.mark.parametrize("name", ["minicpmv4_6", "minicpmv4_7", "qwen3_5"])
def test_its_prefills_are_not_captured(name: str) -> None:
    model = model_config(config_json(make_reference(name)))
    assert captures_prefills(model, RuntimeConfig(), 1) == (name == "qwen3_5")


def test_each_round_folds_once_more_and_its_last_layer_may_go() -> None:
    hf = config_json(make_reference("minicpmv4_6"))
    encoder = model_config(
        {
            **hf,
            "merger_times": 2,
            "vision_config": {**hf["vision_config"], "num_hidden_layers": 3},
            "drop_vision_last_layer": True,
        }
    ).encoder
    assert encoder is not None
    found = {one.name: (one.shape, one.layers) for one in encoder.weights}
    assert found["merger.0.linear_2.weight"] == ((16, 64), 1)
    assert found["merger.1.linear_2.weight"] == ((hf["text_config"]["hidden_size"], 64), 1)
    assert found["encoder.layers.mlp.fc1.weight"][1] == 2
