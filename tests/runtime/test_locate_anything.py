"""LocateAnything is a Qwen2 behind Kimi-VL's tower, by a config class of SGLang's."""

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
LOCATE = _FILES["a/locate-anything-3b-around-qwen2.5-3b"]


def test_its_text_is_a_qwen2() -> None:
    text = {**LOCATE["text_config"], "torch_dtype": LOCATE["torch_dtype"]}
    assert replace(model_config(LOCATE), encoder=None) == model_config(text)


def test_a_tower_that_is_not_told_is_that_of_sglangs_class() -> None:
    whole, untold = (model_config({**LOCATE, "vision_config": one}) for one in (LOCATE["vision_config"], {}))
    assert whole.encoder == untold.encoder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text_config": {**LOCATE["text_config"], "model_type": "qwen3"}}, "with qwen2 alone"),
        ({"text_config": None}, "locateanything without a text_config"),
        ({"vision_config": {"hidden_size": "1152"}}, "hidden_size is '1152': a positive whole number"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**LOCATE, **changes})


_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_FP8 = {"quantization_config": _BLOCKS}


@pytest.mark.parametrize(
    ("changes", "release", "words", "ends", "unknown"),
    [
        ({}, "0.5.23", "", None, ""),
        ({}, "0.5.17", "--tp-size 2", None, ""),
        ({}, "0.5.16", "", None, "releases before 0.5.17: they have no class of it, or its tower whole"),
        ({}, "0.5.23", "--pp-size 2", "no pipeline stages", ""),
        ({}, "0.5.23", "--quantization fp8", None, ""),
        (_FP8, "0.5.23", "", None, ""),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    changes: dict[str, Any], release: str, words: str, ends: str | None, unknown: str, tmp_path: Path
) -> None:
    check_server(tmp_path, {**LOCATE, **changes}, words, ends, unknown, release)
