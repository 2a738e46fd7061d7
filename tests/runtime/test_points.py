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
            "llm_config: quantization_config: which of two SGLang reads",
        ),
        ("llm_config", {"rope_theta": "missing"}, "rope_theta is missing: what it is then"),
        ("llm_config", {"tie_word_embeddings": "missing"}, "tie_word_embeddings is missing: what it is then"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(section: str, changes: dict[str, Any], said: str) -> None:
    told = {name: one for name, one in {**POINTS[section], **changes}.items() if one != "missing"}
    with pytest.raises(ConfigError, match=said):
        model_config({**POINTS, section: told})


_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
_TOWER = {"modules_to_not_convert": ["vision_encoder", "vision_projector"]}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({**_AWQ, **_TOWER}, None),
        (_AWQ, "no list means vision_encoder.blocks.0.attn.qkv_proj"),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, None),
        ({**_AWQ, "modules_to_not_convert": [*_TOWER["modules_to_not_convert"], "o_proj"]}, "is told apart"),
        ({**_AWQ, **_TOWER, "kv_cache_scheme": {"num_bits": 8}}, "ends at scales of keys"),
    ],
)
def test_a_quantized_files_list_means_its_tower(section: dict[str, Any], said: str | None) -> None:
    told = {**POINTS, "quantization_config": section}
    try:
        obstacles = str(model_config(told).obstacles)
    except ConfigError as error:
        obstacles = error.message
    assert obstacles == "()" if said is None else said in obstacles
