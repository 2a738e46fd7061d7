"""Janus Pro is a Llama beside a tower of one size, and beside what draws and is not asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from tests.memory.checkpoints import DATA
from tests.sgl_tune.ends import check_server

JANUS = json.loads((DATA / "published_families.json").read_text())["a/janus-pro-7b-from-memory"]
# transformers' LlamaConfig's, which a Llama's file tells
_UNTOLD = {"hidden_size": 4096, "num_attention_heads": 32}


def _with(hf: Mapping[str, Any], section: tuple[str, ...], changes: Mapping[str, Any]) -> dict[str, Any]:
    if not section:
        return {**hf, **changes}
    return {**hf, section[0]: _with(hf[section[0]], section[1:], changes)}


def test_its_text_is_a_llama() -> None:
    assert replace(model_config(JANUS), encoder=None) == model_config({**JANUS["language_config"], **_UNTOLD})


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        (("vision_config",), {"cls": "HybridVisionTower"}, "cls is 'HybridVisionTower': here is 'CLIPVision"),
        (
            ("vision_config", "params"),
            {"model_name": "siglip_so400m_patch14_384"},
            "model_name is 'siglip_so",
        ),
        (("vision_config", "params"), {"select_layer": -2}, "select_layer is -2: here is -1"),
        (("vision_config", "params"), {"image_size": 8}, "image_size is 8: no patch of 16 fits"),
        (("vision_config", "params"), {"pixel_mean": [0.5]}, "pixel_mean: what becomes of it is not known"),
        (("aligner_config", "params"), {"projector_type": "linear"}, "projector_type is 'linear'"),
        (("aligner_config", "params"), {"input_dim": 1152}, "input_dim is 1152: 1024 are there"),
        (("gen_aligner_config", "params"), {"n_embed": 2048}, "n_embed is 2048: 4096 are there"),
        (("gen_vision_config",), {"cls": "VQ-8"}, "cls is 'VQ-8': here is 'VQ-16'"),
        (("gen_head_config", "params"), {"n_embed": None}, "n_embed is None: a positive whole number"),
        (("language_config",), {"model_type": "qwen2"}, "SGLang has multi_modality with llama alone"),
        ((), {"gen_head_config": None}, "gen_head_config is None: an object is needed"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(
    section: tuple[str, ...], changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config(_with(JANUS, section, changes))


@pytest.mark.parametrize(
    ("words", "ends", "unknown"),
    [
        ("", None, ""),
        ("--pp-size 2", "no pipeline stages", ""),
        ("--quantization fp8", None, ""),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", None, "drafts beside its tower"),
    ],
)
def test_which_servers_end_and_which_are_not_known(
    words: str, ends: str | None, unknown: str, tmp_path: Path
) -> None:
    check_server(tmp_path, JANUS, words, ends, unknown)
