"""MiDashengLM is a Qwen2 behind an encoder of sounds, where its file tells all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA

_NAME = "a/midashenglm-7b-from-memory"
_FILE = json.loads((DATA / "published_families.json").read_text())[_NAME]
_EAR, _TEXT = "audio_encoder_config", "text_config"


def test_its_text_is_a_qwen2_that_turns_as_one_of_text_does() -> None:
    """SGLang's class takes away how many pairs turn by which place."""
    text = {**_FILE[_TEXT], "model_type": "qwen2", "torch_dtype": "bfloat16", "rope_scaling": None}
    assert replace(model_config(_FILE), encoder=None) == model_config(text)


def _shapes(**changes: Any) -> dict[str, tuple[int, ...]]:
    encoder = model_config({**_FILE, _EAR: {**_FILE[_EAR], **changes}}).encoder
    assert encoder is not None
    return {one.name.removeprefix("audio_tower."): one.shape for one in encoder.weights}


def test_places_are_those_of_patches() -> None:
    found = _shapes(patch_size=[16, 8], patch_stride=[32, 9])
    assert found["patch_embed.proj.weight"] == (1280, 1, 16, 8)
    assert found["freq_pos_embed"] == (1, 1280, 2, 1) and found["time_pos_embed"] == (1, 1280, 1, 112)
    assert _shapes(patch_size=16)["patch_embed.proj.weight"] == (1280, 1, 16, 16)


def test_what_its_layers_answer_is_scaled_where_a_file_says_by_what() -> None:
    scaled, plain = _shapes(init_values=1e-5), _shapes()
    assert scaled.keys() - plain.keys() == {"blocks.ls1.gamma", "blocks.ls2.gamma"}
    assert plain.keys() - _shapes(qkv_bias=False).keys() == {"blocks.attn.qkv_proj.bias"}


_ASKED = (
    *("embed_dim", "depth", "num_heads", "mlp_ratio", "n_mels", "n_fft", "win_length", "input_channels"),
    *("patch_size", "patch_stride", "target_length"),
)


@pytest.mark.parametrize("name", _ASKED)
def test_what_its_ear_is_made_of_is_to_be_told(name: str) -> None:
    told = {one: value for one, value in _FILE[_EAR].items() if one != name}
    with pytest.raises(ConfigError, match=f"{_EAR}: {name} is None"):
        model_config({**_FILE, _EAR: told})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({_TEXT: {**_FILE[_TEXT], "rope_scaling": {"type": "linear", "factor": 2.0}}}, "rope_scaling is"),
        ({_TEXT: {name: one for name, one in _FILE[_TEXT].items() if name != "rope_theta"}}, "rope_theta is"),
        ({_EAR: {**_FILE[_EAR], "num_heads": 12}}, "1280 cannot be divided among 12 heads"),
        ({_EAR: {**_FILE[_EAR], "patch_size": [1, 2, 3]}}, "patch_size is .*: two numbers are needed"),
        *(({_EAR: {**_FILE[_EAR], "mlp_ratio": ratio}}, "mlp_ratio is") for ratio in (0, -4.0, 1e-9, "4")),
        ({"subsample_factor": None}, "subsample_factor is None"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_FILE, **changes})
