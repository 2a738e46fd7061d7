"""SDAR's servers: those that end in its class, and those that it is not known of."""

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

DENSE, SPARSE = "a/sdar-8b-from-memory", "a/sdar-30b-a3b-from-memory"
_DP = "--tp 4 --dp 2 --enable-dp-attention"


def _deployment(
    folder: Path, name: str, told: str = "", changes: dict[str, Any] | None = None, **flags: Any
) -> Deployment:
    file = {**json.loads(PUBLISHED.read_text())[name], **(changes or {})}
    (folder / "config.json").write_text(json.dumps(file))
    command = f"python -m sglang.launch_server --model-path {folder} --trust-remote-code {told}"
    asked = ServerFlags(**{"arch": "sm90", "sglang_version": "0.5.23", **flags})
    return select_deployments(asked, command=command.split())[0]


@pytest.mark.parametrize(
    ("name", "told", "why"),
    [
        *((name, "--tp 8", None) for name in (DENSE, SPARSE)),
        (DENSE, _DP, None),
        (SPARSE, _DP, "makes queries for all ranks"),
        (DENSE, "--pp-size 2", "SDARForCausalLM has no pipeline stages"),
        (SPARSE, "--pp-size 2", "SDARMoeForCausalLM has no pipeline stages"),
    ],
)
def test_which_servers_end_in_its_class(name: str, told: str, why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, name, told))
    assert (found is None) if why is None else (found is not None and why in found)


@pytest.mark.parametrize(
    ("name", "told", "said"),
    [
        *((name, "--dllm-algorithm LowConfidence", "--dllm-algorithm") for name in (DENSE, SPARSE)),
        *(
            (name, "--dllm-algorithm LowConfidence --pp-size 2", "--dllm-algorithm")
            for name in (DENSE, SPARSE)
        ),
        *((name, "--speculative-algorithm NGRAM", "drafts") for name in (DENSE, SPARSE)),
        (SPARSE, "--tp 2 --moe-a2a-backend deepep", "an all-to-all"),
        (SPARSE, "--tp 2 --ep 2 --ep-num-redundant-experts 8", "experts that move"),
        (DENSE, "--tp 2", None),
        *((name, "--quantization fp8", None) for name in (DENSE, SPARSE)),
        (SPARSE, "--tp 2 --ep 2", None),
    ],
)
@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
def test_what_is_not_known_is_named(
    name: str, told: str, said: str | None, version: str, tmp_path: Path
) -> None:
    shape = _deployment(tmp_path, name, told, sglang_version=version).shape
    assert (shape.model is None) is (said is not None)
    assert said is None or f"sdar_moe does not go with {said}" in shape.unknown.replace("sdar ", "sdar_moe ")


def test_experts_are_as_many_as_ranks(tmp_path: Path) -> None:
    few = {"num_experts": 8, "num_experts_per_tok": 4}
    found = never_starts(_deployment(tmp_path, SPARSE, "--tp 16 --nnodes 2", few, arch="sm90"))
    assert found == "8 experts are fewer than 16 ranks"
