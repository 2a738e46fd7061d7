"""POINTS is a Qwen2 behind Qwen2-VL's tower, where its file tells all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA

_NAME = "a/points-reader-around-qwen2.5-3b"
POINTS = json.loads((DATA / "published_families.json").read_text())[_NAME]


def test_its_text_is_a_qwen2_whatever_it_is_called() -> None:
    text = {**POINTS["llm_config"], "torch_dtype": POINTS["torch_dtype"]}
    whole = {**POINTS, "llm_config": {**POINTS["llm_config"], "model_type": "other"}}
    assert replace(model_config(whole), encoder=None) == model_config(text)


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        ("vision_config", {"embed_dim": 1536}, "embed_dim is 1536: SGLang joins 1280 alone"),
        ("vision_config", {"spatial_merge_size": 3}, "spatial_merge_size is 3: SGLang joins 2 alone"),
        ("vision_config", {"in_chans": None}, "in_chans is None: a positive whole number"),
        ("vision_config", {"in_channels": 1}, "in_channels is 1: SGLang reads in_chans"),
        ("vision_config", {"depth": None}, "depth is None: a positive whole number"),
        (
            "llm_config",
            {"quantization_config": {"quant_method": "fp8"}},
            "which of POINTS' matrices lists mean",
        ),
        ("llm_config", {"rope_theta": "missing"}, "rope_theta is missing: what it is then"),
        ("llm_config", {"tie_word_embeddings": "missing"}, "tie_word_embeddings is missing: what it is then"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(section: str, changes: dict[str, Any], said: str) -> None:
    told = {name: one for name, one in {**POINTS[section], **changes}.items() if one != "missing"}
    with pytest.raises(ConfigError, match=said):
        model_config({**POINTS, section: told})
