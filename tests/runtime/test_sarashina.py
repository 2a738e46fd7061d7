"""Sarashina2-Vision is a Llama behind Qwen2-VL's tower, where its file tells all."""

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
SARASHINA = _FILES["a/sarashina2-vision-8b-from-its-classes"]


def test_its_text_is_a_llama() -> None:
    text = {**SARASHINA["text_config"], "torch_dtype": SARASHINA["torch_dtype"]}
    assert replace(model_config(SARASHINA), encoder=None) == model_config(text)


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        ("vision_config", {"hidden_size": 3584}, "hidden_size is 3584: its text is 4096 wide"),
        ("vision_config", {"in_channels": 1}, "in_channels is 1: SGLang reads in_chans"),
        ("vision_config", {"in_chans": None}, "in_chans is None: a positive whole number"),
        ("vision_config", {"depth": None}, "depth is None: a positive whole number"),
        ("text_config", {"model_type": "qwen2"}, "SGLang has sarashina2_vision with llama alone"),
        (
            "text_config",
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            "rope_scaling: what SGLang makes",
        ),
        ("text_config", {"quantization_config": {"quant_method": "fp8"}}, "which of Sarashina's matrices"),
    ],
)
def test_what_is_not_known_of_a_section_is_named(section: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**SARASHINA, section: {**SARASHINA[section], **changes}})


@pytest.mark.parametrize("name", ["model_type", "hidden_size", "num_key_value_heads", "tie_word_embeddings"])
def test_what_its_own_class_would_say_is_to_be_told(name: str) -> None:
    text = {one: value for one, value in SARASHINA["text_config"].items() if one != name}
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({**SARASHINA, "text_config": text})


def test_its_text_has_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match="vocab_size is 5: its text_config has another"):
        model_config({**SARASHINA, "vocab_size": 5})


@pytest.mark.parametrize(
    ("words", "ends", "unknown"),
    [
        ("", None, ""),
        ("--pp-size 2", "no pipeline stages", ""),
        ("--quantization fp8", None, "quantized weights beside its tower"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", None, "drafts beside its tower"),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    words: str, ends: str | None, unknown: str, tmp_path: Path
) -> None:
    check_server(tmp_path, SARASHINA, f"--trust-remote-code {words}", ends, unknown)
