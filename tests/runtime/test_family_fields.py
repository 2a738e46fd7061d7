"""Each family's reading of a config.json beside the config class of the installed transformers."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
import transformers
from transformers import CONFIG_MAPPING

from runtime.server.decoders.family import HARMLESS
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.known import FAMILIES, model_config
from tests.oracle.published import published

# Served by SGLang under the class of another family.
_SAME_AS = {"kimi_k2": "deepseek_v3", "mimo": "qwen2"}
_ACTIVATION = {
    "nemotron_h": "mlp_hidden_act",
    "gemma2": "hidden_activation",
    "gemma3_text": "hidden_activation",
}
_ALSO = {"gemma": "gelu"}  # which transformers makes the other
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def _class(family: str) -> Any:
    return CONFIG_MAPPING[_SAME_AS.get(family, family)]


def _file(family: str, **told: Any) -> dict[str, Any]:
    """What transformers would write of such a config."""
    config = _class(family)(**told).to_dict()
    return {**json.loads(json.dumps(config)), "model_type": family}


def _optional(family: str) -> list[str]:
    return [field.name for field in fields(_class(family)) if field.name not in (*_SIZES, "model_type")]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_field_of_the_config_class_is_read_or_known_not_to_matter(name: str) -> None:
    family, file = FAMILIES[name], _file(name)
    reading = Fields(file, family.defaults)
    family.read(reading)
    own = {field.name for field in fields(_class(name))}
    unread = own - reading.seen - HARMLESS - family.harmless
    assert not unread, f"{name} of transformers {transformers.__version__} has {sorted(unread)}"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_field_that_is_left_out_is_as_its_config_class_says(name: str) -> None:
    sizes = {one: value for one, value in _file(name).items() if one in _SIZES}
    assert model_config({"model_type": name, **sizes}) == model_config(_file(name, **sizes))


@pytest.mark.parametrize("name", FAMILIES)
def test_each_field_left_out_alone(name: str) -> None:
    whole = _file(name)
    for field in _optional(name):
        file = {one: value for one, value in whole.items() if one != field}
        kept = {one: value for one, value in file.items() if one != "model_type"}
        try:
            said = _file(name, **kept)
        except (TypeError, ValueError):
            continue  # transformers refuses it as well
        assert model_config(file) == model_config(said), field


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
    rewritten = _class("step3p5")(**json.loads(json.dumps(file))).to_dict()
    model = model_config(file)
    assert model == model_config({**json.loads(json.dumps(rewritten)), "model_type": "step3p5"})
    assert not model.obstacles and model.attention["sliding"].num_heads == 96
    assert bool(model.caps) is bool(told)


@pytest.mark.parametrize("name", FAMILIES)
def test_no_other_activation_is_computed_silently(name: str) -> None:
    file, field = _file(name), _ACTIVATION.get(name, "hidden_act")
    for act in {"gelu", "relu", "gelu_pytorch_tanh", 7} - {file[field], _ALSO.get(name)}:
        assert any(f"{field} is" in why for why in model_config({**file, field: act}).obstacles)
