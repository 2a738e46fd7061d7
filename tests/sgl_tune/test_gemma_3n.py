"""Gemma 3n: which of its servers end, and what of them is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.runtime.config_files import config_file

_TEXT = {**config_file("gemma3n_text"), "architectures": ["Gemma3nForCausalLM"], "dtype": "bfloat16"}


def _deployment(folder: Path, command: str, release: str = "0.5.23") -> Deployment:
    (folder / "config.json").write_text(json.dumps(_TEXT))
    server = f"python -m sglang.launch_server --model-path {folder} {command}"
    [one] = select_deployments(ServerFlags(arch="sm90", sglang_version=release), command=server.split())
    return one


@pytest.mark.parametrize(
    ("command", "release", "why"),
    [
        ("", "0.5.23", None),
        ("--tp 2", "0.5.14", None),
        ("", "0.5.13", "before 0.5.14 SGLang's Gemma 3n does not find its rope_local_base_freq"),
        ("--pp-size 2", "0.5.23", "Gemma3nForCausalLM has no pipeline stages"),
        ("--tp 2 --dp 2 --enable-dp-attention", "0.5.23", "splits its heads over all 2 ranks"),
    ],
)
def test_which_servers_end(command: str, release: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, command, release))
    assert found is None if why is None else found is not None and why in found, found


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--tp 4 --dp 2 --enable-dp-attention", "DP attention"),
        ("--quantization fp8", "quantized weights"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts"),
    ],
)
def test_what_is_not_known_is_named(command: str, said: str, tmp_path: Path) -> None:
    refused = _deployment(tmp_path, command)
    assert refused.shape.model is None and refused.server.key
    assert f"gemma3n_text does not go with {said}" in refused.shape.unknown
