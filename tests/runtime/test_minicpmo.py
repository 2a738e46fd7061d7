"""A MiniCPM-o is a Qwen2 that its class makes twice, beside what it sees and hears with."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from runtime.server.captured_layers import captures_prefills
from runtime.server.config import RuntimeConfig
from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import checkpoints
from tests.runtime.starts import make_meta, make_runner, make_runtime
from tests.sgl_tune.ends import served

OMNI = next(one.config for one in checkpoints() if "/minicpm-o-" in one.name)
_BESIDE = ("architectures", "auto_map", "vision_config", "audio_config")
_SMALL = {
    **OMNI,
    **{"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 512},
    **{"num_hidden_layers": 2, "vocab_size": 1024},
    "vision_config": {**OMNI["vision_config"], "num_hidden_layers": 1},
    "audio_config": {**OMNI["audio_config"], "encoder_layers": 1},
}


def test_its_text_is_a_qwen2_whose_prefills_are_not_captured() -> None:
    text = {name: told for name, told in OMNI.items() if name not in _BESIDE} | {"model_type": "qwen2"}
    omni = model_config(OMNI)
    assert replace(omni, encoder=None) == model_config(text)
    assert not captures_prefills(omni, RuntimeConfig(), 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 4.5}, "version is 4.5: SGLang's class has a Qwen2 inside, as MiniCPM-o 2.6"),
        ({"version": None}, "version is None"),
        ({"init_vision": False}, "init_vision is False"),
        ({"drop_vision_last_layer": None}, "drop_vision_last_layer is missing"),
        ({"audio_config": None}, "audio_config: d_model is None: a positive whole number is needed"),
        ({"audio_config": {"model_type": "wav2vec2"}}, "'wav2vec2': SGLang's class reads whisper"),
        ({"audio_config": {**OMNI["audio_config"], "num_hidden_layers": 2}}, "num_hidden_layers is 2, and"),
        ({"architectures": ["MiniCPMV"]}, "architectures names MiniCPMV"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**OMNI, **changes})


def test_what_its_own_class_would_say_is_to_be_told() -> None:
    with pytest.raises(ConfigError, match="rope_theta is missing"):
        model_config({name: told for name, told in OMNI.items() if name != "rope_theta"})


@pytest.mark.parametrize(
    ("changes", "release", "words", "ends", "unknown"),
    [
        ({}, "0.5.23", "", None, ""),
        ({}, "0.5.19", "", None, ""),
        ({}, "0.5.18", "", None, "releases before 0.5.19"),
        ({}, "0.5.23", "--pp-size 2", "no pipeline stages", ""),
        ({}, "0.5.23", "--quantization fp8", None, "quantized weights beside its tower"),
        ({"version": 4.5}, "0.5.23", "", "MiniCPM-o 4.5 is a Qwen3", "version is 4.5"),
        ({"version": 4.5}, "0.5.23", "--load-format dummy", None, "version is 4.5"),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    changes: dict[str, Any], release: str, words: str, ends: str | None, unknown: str, tmp_path: Path
) -> None:
    found = served(tmp_path, {**OMNI, **changes}, f"--trust-remote-code {words}", release)
    said = never_starts(found)
    assert said is None if ends is None else said is not None and ends in said
    assert unknown in found.shape.unknown if unknown else not found.shape.unknown


def test_what_is_made_twice_is_there_twice_while_weights_are_made() -> None:
    model, device = model_config(_SMALL), make_meta()
    runner = make_runner(model, device, runtime=make_runtime(dtype="bfloat16"), as_sglang=True)
    with device.active():
        runner.init_communicator()
        runner.load_weights()
    weights, encoder = runner.recorder.phases[-1], model.encoder
    assert encoder is not None
    all_of_it, seen = (
        sum(2 * one.layers * prod(one.shape) for one in encoder.weights if which(one))
        for which in (lambda _: True, lambda one: not one.is_heard)
    )
    text = weights.persistent_bytes - all_of_it
    assert weights.peak_bytes - weights.persistent_bytes == pytest.approx(text + seen, rel=0.01)
