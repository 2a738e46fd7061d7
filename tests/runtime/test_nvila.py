"""NVILA is a Qwen2 behind SigLIP, where its file tells all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA
from tests.sgl_tune.ends import check_server

_FILES = json.loads((DATA / "published_families.json").read_text())
_WHOLE, _LITE = (
    _FILES[f"a/nvila-{name}"] for name in ("8b-around-qwen2.5-7b", "lite-2b-around-qwen2.5-1.5b")
)


@pytest.mark.parametrize("file", [_WHOLE, _LITE])
def test_its_text_is_a_qwen2(file: dict[str, Any]) -> None:
    text = {**file["text_config"], "torch_dtype": file["torch_dtype"]}
    assert replace(model_config(file), encoder=None) == model_config(text)


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        ("vision_config", {"hidden_size": 768}, "hidden_size is 768: SGLang joins 1152 alone"),
        ("vision_config", {"vision_use_head": False}, "vision_use_head is False"),
        ("vision_config", {"image_size": None}, "image_size is None: a positive whole number"),
        ("text_config", {"model_type": "qwen3"}, "SGLang has nvila with qwen2 alone"),
        ("text_config", {"quantization_config": {"quant_method": "fp8"}}, "which of NVILA's matrices"),
    ],
)
def test_what_is_not_known_of_a_section_is_named(section: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**_WHOLE, section: {**_WHOLE[section], **changes}})


@pytest.mark.parametrize("name", ["model_type", "hidden_size", "rope_theta", "tie_word_embeddings"])
def test_what_its_own_class_would_say_is_to_be_told(name: str) -> None:
    text = {one: value for one, value in _LITE["text_config"].items() if one != name}
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({**_LITE, "text_config": text})


@pytest.mark.parametrize(
    ("words", "release", "ends", "unknown"),
    [
        ("", "0.5.23", None, ""),
        ("--tp 2", "0.5.15", None, ""),
        ("", "0.5.14", "finds no weights of NVILA's tower by its files' names", ""),
        ("--load-format dummy", "0.5.14", None, ""),
        ("--pp-size 2", "0.5.23", "no pipeline stages", ""),
        ("--quantization fp8", "0.5.23", None, ""),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    words: str, release: str, ends: str | None, unknown: str, tmp_path: Path
) -> None:
    check_server(tmp_path, _WHOLE, f"--trust-remote-code {words}", ends, unknown, release)
