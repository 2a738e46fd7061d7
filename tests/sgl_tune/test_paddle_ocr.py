"""PaddleOCR-VL: which of its servers end, which are not computed, and what of a file is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.server.decoders.known import model_config
from runtime.server.errors import ConfigError
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import DATA
from tests.sgl_tune.ends import PUBLISHED

PADDLE = json.loads(PUBLISHED.read_text())["PaddlePaddle/PaddleOCR-VL"]
_TIED, _ALONE = {"tie_word_embeddings": True}, {"auto_map": {}}


def _deployment(
    folder: Path, told: str | None = "", changes: dict[str, Any] | None = None, version: str = "0.5.23"
) -> Deployment:
    (folder / "config.json").write_text(json.dumps({**PADDLE, **(changes or {})}))
    asked = {"arch": "sm90", "sglang_version": version}
    if told is None:
        return select_deployments(ServerFlags(**asked, model_path=str(folder)), command=[])[0]
    command = f"python -m sglang.launch_server --model-path {folder} {told}"
    return select_deployments(ServerFlags(**asked), command=command.split())[0]


@pytest.mark.parametrize(
    ("told", "changes", "version", "why"),
    [
        ("--trust-remote-code", {}, "0.5.23", None),
        ("", {}, "0.5.21", None),
        ("", {}, "0.5.22", "ties PaddleOCR-VL's head"),
        ("--trust-remote-code", _ALONE, "0.5.23", "ties PaddleOCR-VL's head"),
        ("", _TIED, "0.5.23", None),
        (None, {}, "0.5.23", None),
        (None, _ALONE, "0.5.23", "ties PaddleOCR-VL's head"),
        ("--trust-remote-code --tp 2 --dp 2 --enable-dp-attention", {}, "0.5.23", "its cache has those of 1"),
        ("--trust-remote-code --pp-size 2", {}, "0.5.23", "no pipeline stages"),
    ],
)
def test_which_servers_end_in_its_class(
    told: str | None, changes: dict[str, Any], version: str, why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, told, changes, version))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", None),
        ("--tp 8", None),
        ("--quantization fp8", None),
        ("--speculative-algorithm NGRAM", "drafts"),
    ],
)
def test_which_servers_are_not_computed(told: str, said: str | None, tmp_path: Path) -> None:
    unknown = _deployment(tmp_path, f"--trust-remote-code {told}").shape.unknown
    assert (not unknown) if said is None else said in unknown


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rope_is_neox_style": False}, "rope_is_neox_style is not true"),
        ({"rope_is_neox_style": None}, "rope_is_neox_style is not true"),
        ({"rope_theta": None, "rope_parameters": None}, "rope_theta is missing"),
        ({"use_bias": True}, "use_bias is True"),
    ],
)
def test_what_is_not_computed_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    assert said in model_config({**PADDLE, **changes}).obstacles[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layer_types": ["sliding_attention"] * 18}, "layer_types names 'sliding_attention'"),
        ({"text_config": {**PADDLE, "model_type": "paddleocr_vl_text"}}, "text_config: SGLang's releases"),
        ({"vision_config": {**PADDLE["vision_config"], "spatial_merge_size": 3}}, "spatial_merge_size is 3"),
        ({"vision_config": {**PADDLE["vision_config"], "num_channels": None}}, "num_channels is None"),
        ({"vision_config": None}, "vision_config: hidden_size is None"),
    ],
)
def test_what_is_not_known_of_a_file_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_config({**PADDLE, **changes})


@pytest.mark.parametrize("name", ["tie_word_embeddings", "head_dim", "use_bias", "intermediate_size"])
def test_what_its_own_class_and_transformers_say_otherwise_is_to_be_told(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is missing"):
        model_config({one: value for one, value in PADDLE.items() if one != name})


def test_it_has_as_many_parameters_as_its_page_says() -> None:
    """Beside the head of SigLIP, which SGLang and transformers leave unread."""
    width, inner = 1152, 4304
    head = 4 * (width + 1) * width + 2 * width * inner + inner + width + 2 * width + width
    held = json.loads((DATA / "sglang_weights.json").read_text())["PaddlePaddle/PaddleOCR-VL"]["1"]
    assert sum(held) // 2 + head == 958588736
