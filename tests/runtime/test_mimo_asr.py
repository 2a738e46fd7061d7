"""MiMo-V2-ASR is a Qwen2 that hears by what MiMo-V2.5 has for the codes of sounds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA

_FILE = json.loads((DATA / "published_families.json").read_text())["a/mimo-v2.5-asr-from-memory"]
_EAR = "audio_config"


def test_its_text_is_mimos() -> None:
    told = {name: one for name, one in _FILE.items() if name != _EAR}
    text = model_config({**told, "model_type": "mimo", "architectures": ["MiMoForCausalLM"]})
    assert not text.obstacles and replace(model_config(_FILE), encoder=None) == text


def _names(**changes: Any) -> set[str]:
    encoder = model_config({**_FILE, _EAR: {**_FILE[_EAR], **changes}}).encoder
    assert encoder is not None
    return {one.name for one in encoder.weights}


def test_what_joins_its_sounds_to_text_is_as_the_section_says() -> None:
    assert _names(add_post_norm=True) - _names() == {"audio_tower.norm.weight"}
    assert {"audio_tower.projection.mlp.2.weight"} <= _names(projection_layers=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({_EAR: None}, "audio_config is None: an object is needed"),
        ({_EAR: {**_FILE[_EAR], "d_model": 768}}, "d_model is told, and SGLang ends at it"),
        ({_EAR: {**_FILE[_EAR], "projection_layers": 3}}, "projection_layers is 3"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_FILE, **changes})


def test_its_layers_have_biases_whatever_a_file_says() -> None:
    assert "attention_bias is False" in model_config({**_FILE, "attention_bias": False}).obstacles[0]
