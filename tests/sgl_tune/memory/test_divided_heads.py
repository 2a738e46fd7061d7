"""Heads split over all ranks where --enable-dp-lm-head asks for one a group: a plan, and no report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.gaps import unplanned
from sgl_tune.keys.keys import expected_keys
from sgl_tune.memory.start import starts_of
from tests.memory.checkpoints import checkpoints

_CONFIGS = {one.name: one.config for one in checkpoints()}
_MINIMAX, _NEMOTRON = "MiniMaxAI/MiniMax-M2", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
_BACKEND = "--moe-runner-backend flashinfer_cutlass"


@pytest.mark.parametrize(
    ("like", "version", "is_divided", "flags"),
    [
        (_MINIMAX, "0.5.23", True, ""),
        (_NEMOTRON, "0.5.13", True, _BACKEND),
        (_NEMOTRON, "0.5.14", False, _BACKEND),
        ("Qwen/Qwen3-32B", "0.5.12", False, ""),
    ],
)
def test_whose_head_no_group_has(
    like: str, version: str, is_divided: bool, flags: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(_CONFIGS[like]))
    words = f"--model-path {tmp_path} --tp 4 --dp 2 --enable-dp-attention --enable-dp-lm-head {flags}"
    target = ServerFlags(arch="sm90", sglang_version=version)
    command = ("python", "-m", "sglang.launch_server", *words.split())
    (found,) = select_deployments(target, command, None)
    assert not unplanned(found) and (not flags or expected_keys(found))
    if not is_divided:
        assert starts_of(found, "0")
        return
    with pytest.raises(UsageError, match=r"^--enable-dp-lm-head: SGLang's class of \w+ splits its head"):
        starts_of(found, "0")
