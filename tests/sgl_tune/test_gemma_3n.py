"""Gemma 3n: which of its servers end, and what of them is not known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.runtime.config_files import config_file
from tests.sgl_tune.ends import PUBLISHED

_TEXT = {**config_file("gemma3n_text"), "architectures": ["Gemma3nForCausalLM"], "dtype": "bfloat16"}
_WHOLE = json.loads(PUBLISHED.read_text())["google/gemma-3n-E4B-it"]


def _deployment(folder: Path, command: str, release: str = "0.5.23", told: Any = _TEXT) -> Deployment:
    (folder / "config.json").write_text(json.dumps(told))
    server = f"python -m sglang.launch_server --model-path {folder} {command}"
    [one] = select_deployments(ServerFlags(arch="sm90", sglang_version=release), command=server.split())
    return one


@pytest.mark.parametrize(
    ("command", "release", "why"),
    [
        ("--disable-prefill-cuda-graph", "0.5.23", None),
        ("--tp 2 --disable-prefill-cuda-graph", "0.5.14", None),
        ("", "0.5.14", "attention answers by heads"),
        ("", "0.5.23", "takes whole rows: --disable-prefill-cuda-graph"),
        ("", "0.5.13", "before 0.5.14 SGLang's Gemma 3n does not find its rope_local_base_freq"),
        ("--pp-size 2", "0.5.23", "Gemma3nForCausalLM has no pipeline stages"),
        ("--tp 2 --dp 2 --enable-dp-attention --disable-prefill-cuda-graph", "0.5.23", "over all 2 ranks"),
        ("--quantization fp8 --disable-prefill-cuda-graph", "0.5.23", "lowers coefficients of its streams"),
        ("--quantization w8a8_fp8 --disable-prefill-cuda-graph", "0.5.14", "lowers coefficients"),
    ],
)
def test_which_servers_end(command: str, release: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, command, release))
    assert found is None if why is None else found is not None and why in found, found


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--tp 4 --dp 2 --enable-dp-attention", "DP attention"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts"),
    ],
)
def test_what_is_not_known_is_named(command: str, said: str, tmp_path: Path) -> None:
    refused = _deployment(tmp_path, command)
    assert refused.shape.model is None and refused.server.key
    assert f"gemma3n_text does not go with {said}" in refused.shape.unknown


@pytest.mark.parametrize(
    ("command", "release", "why"),
    [
        ("--tp 8", "0.5.23", None),
        ("", "0.5.14", None),
        ("", "0.5.12", "before 0.5.14 SGLang's Gemma 3n does not find its rope_local_base_freq"),
        ("--pp-size 2", "0.5.23", "Gemma3nForConditionalGeneration has no pipeline stages"),
        ("--tp 16", "0.5.23", "8 attention heads cannot be divided"),
    ],
)
def test_which_servers_of_a_whole_one_end(
    command: str, release: str, why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, command, release, _WHOLE))
    assert found is None if why is None else found is not None and why in found, found


def test_a_tower_of_another_dtype_than_its_server_is_named(tmp_path: Path) -> None:
    refused = _deployment(tmp_path, "--dtype float16", told=_WHOLE)
    assert "another dtype than bfloat16" in refused.shape.unknown
    assert _deployment(tmp_path, "--dtype float16").shape.model is not None


def test_a_release_has_the_tower_that_it_pins(tmp_path: Path) -> None:
    counts = []
    for release in ("0.5.22", "0.5.23"):
        encoder = _deployment(tmp_path, "", release, _WHOLE).model.encoder
        assert encoder is not None
        counts.append(len(encoder.weights))
    assert counts[1] - counts[0] == 1
