"""Sarvam 105B's servers: those that end in its class, and those that it is not known of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.sgl_tune.ends import PUBLISHED

_NAME = "a/sarvam-105b-from-its-classes"


def _deployment(
    folder: Path, told: str = "", changes: dict[str, Any] | None = None, version: str = "0.5.23", **flags: str
) -> Deployment:
    file = {**json.loads(PUBLISHED.read_text())[_NAME], **(changes or {})}
    (folder / "config.json").write_text(json.dumps(file))
    command = f"python -m sglang.launch_server --model-path {folder} --trust-remote-code {told}"
    asked = ServerFlags(**{"arch": "sm90", "sglang_version": version, **flags})
    return select_deployments(asked, command=command.split())[0]


@pytest.mark.parametrize(
    ("told", "changes", "why"),
    [
        ("--tp 8", {}, None),
        ("--tp 8 --pp-size 2 --nnodes 2", {}, None),
        ("--tp 8 --load-format dummy", {}, "leaves Sarvam 105B's attention without its matrices"),
        ("--tp 8", {"num_experts": 4, "num_experts_per_tok": 2}, "4 experts are fewer than 8 ranks"),
    ],
)
def test_which_servers_end_in_its_class(
    told: str, changes: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, told, changes))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("", None),
        ("--attention-backend triton", None),
        ("--prefill-attention-backend fa3 --decode-attention-backend flashinfer", None),
        ("--dp 2 --enable-dp-attention", None),
        ("--enable-dp-attention", "DP attention of one group"),
        ("--attention-backend flashinfer", "attention but fa3 and triton"),
        ("--attention-backend flashmla", "attention but fa3 and triton"),
        ("--moe-a2a-backend deepep", "an all-to-all"),
        ("--ep 8 --ep-num-redundant-experts 8", "experts that move"),
        ("--quantization fp8", "quantized weights"),
        ("--speculative-algorithm NGRAM", "drafts"),
    ],
)
@pytest.mark.parametrize("version", ["0.5.13", "0.5.23"])
def test_what_is_not_known_is_named(told: str, said: str | None, version: str, tmp_path: Path) -> None:
    shape = _deployment(tmp_path, f"--tp 8 {told}", version=version).shape
    assert (shape.model is None) is (said is not None)
    assert said is None or f"sarvam_mla does not go with {said}" in shape.unknown


def test_a_b200s_own_attention_is_named(tmp_path: Path) -> None:
    assert "attention but fa3 and triton" in _deployment(tmp_path, "--tp 8", arch="sm100").shape.unknown
    assert _deployment(tmp_path, "--tp 8 --attention-backend triton", arch="sm100").shape.model is not None


@pytest.mark.parametrize(("version", "known"), [("0.5.22", False), ("0.5.23", True)])
def test_kernels_that_choose_experts_by_themselves_do_not_correct(
    version: str, known: bool, tmp_path: Path
) -> None:
    told = "--tp 8 --attention-backend triton --moe-runner-backend flashinfer_trtllm"
    shape = _deployment(tmp_path, told, version=version, arch="sm100").shape
    assert (shape.model is not None) is known
    assert known or "trtllm kernels before 0.5.23" in shape.unknown
