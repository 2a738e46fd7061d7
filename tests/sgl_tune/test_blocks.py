"""Servers with --dllm-algorithm that end, and what of them is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.keys.starts import never_starts
from tests.oracle.published import published
from tests.sgl_tune.ends import PUBLISHED

LLADA = "a/llada2-mini-from-memory"
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def _deployment(
    folder: Path, name: str, told: str, version: str, changes: dict[str, Any] | None = None
) -> Deployment:
    families = json.loads(PUBLISHED.read_text())
    file = {**(families[name] if name in families else published()[name].config), **(changes or {})}
    (folder / "config.json").write_text(json.dumps(file))
    command = f"python -m sglang.launch_server --model-path {folder} --trust-remote-code {told}"
    asked = ServerFlags(arch="sm90", sglang_version=version)
    return select_deployments(asked, command=command.split())[0]


@pytest.mark.parametrize(
    ("told", "version", "why"),
    [
        ("--dllm-algorithm LowConfidence --disable-radix-cache", "0.5.12", "no blocks of LlamaForCausalLM"),
        ("--dllm-algorithm Dream --disable-radix-cache", "0.5.12", "has LowConfidence, JointThreshold"),
        ("", "0.5.12", None),
    ],
)
def test_which_servers_end_at_the_first_rank(
    told: str, version: str, why: str | None, tmp_path: Path
) -> None:
    found = never_starts(_deployment(tmp_path, LLAMA, told, version))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("told", "version", "changes", "said"),
    [
        (
            "LowConfidence --dllm-algorithm-config a.yaml",
            "0.5.23",
            {},
            "what a.yaml says of its blocks is not",
        ),
        ("Dream", "0.5.21", {}, "SGLang 0.5.21 has no such algorithm"),
        ("Gemma4Renoise", "0.5.23", {}, "head is its embedding"),
        ("JointThresholdInDel", "0.5.23", {}, "delete_token_id is None, no token of 157184"),
        (
            "LowConfidence",
            "0.5.23",
            {"expert_capacity": 48, "block_size": 16},
            "room for blocks of 16 tokens",
        ),
    ],
)
def test_what_is_refused(told: str, version: str, changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        _deployment(tmp_path, LLADA, f"--dllm-algorithm {told}", version, changes).server  # noqa: B018


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("--dllm-algorithm LowConfidence", "--dllm-algorithm"),
        ("--attention-backend flashinfer", "attention on flashinfer without --dllm-algorithm"),
        ("--quantization fp8", None),
        ("--tp 2 --moe-a2a-backend deepep", "an all-to-all"),
        ("--tp 2 --ep 2 --ep-num-redundant-experts 8", "experts that move"),
        ("--speculative-algorithm NGRAM", "drafts"),
        ("--tp 2 --ep 2", None),
        ("--tp 4 --dp 2 --enable-dp-attention", None),
        ("--pp-size 2", None),
    ],
)
@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
def test_what_of_lladas_servers_is_not_known(
    told: str, said: str | None, version: str, tmp_path: Path
) -> None:
    shape = _deployment(tmp_path, LLADA, told, version).shape
    assert (shape.model is None) is (said is not None)
    assert said is None or f"llada2_moe does not go with {said}" in shape.unknown


def test_trtllm_kernels_route_otherwise_before_0_5_23(tmp_path: Path) -> None:
    told = "--moe-runner-backend flashinfer_trtllm_routed"
    assert _deployment(tmp_path, LLADA, told, "0.5.23").shape.model is not None
