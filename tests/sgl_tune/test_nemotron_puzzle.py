"""Nemotron-H Puzzle: what its servers tune, and which of them end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

_CONFIG = published_config("a/nemotron-h-puzzle-of-told-experts")


def _deployment(folder: Path, config: dict[str, Any], command: str = "", **flags: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps(config))
    told = ServerFlags(**{"arch": "sm90", "sglang_version": "0.5.23", **flags})
    server = f"python -m sglang.launch_server --model-path {folder} --moe-runner-backend flashinfer_cutlass"
    [one] = select_deployments(told, command=f"{server} {command}".split())
    return one


def _uncounted() -> dict[str, Any]:
    blocks = [
        {name: value for name, value in block.items() if name != "n_routed_experts"}
        for block in _CONFIG["block_configs"]
    ]
    return {**_CONFIG, "block_configs": blocks}


def test_each_size_of_experts_is_tuned(tmp_path: Path) -> None:
    ops = expected_keys(_deployment(tmp_path, _CONFIG, "--tp 8"))
    sizes = {
        (block["moe_intermediate_size"], block["num_experts_per_tok"])
        for block in _CONFIG["block_configs"]
        if block["block_type"] == "moe"
    }
    assert [op.op for op in ops] == ["trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2"]
    assert all(len(op.keys) == len(sizes) * len(op.buckets) for op in ops)
    assert all(any(f"512, {width // 8}, 1024" in key for key in ops[0].keys) for width, _ in sizes)


@pytest.mark.parametrize(
    ("load_format", "release", "ends"),
    [
        ("auto", "0.5.13", True),
        ("auto", "0.5.23", True),
        ("dummy", "0.5.22", False),
        ("dummy", "0.5.23", True),
    ],
)
def test_a_block_that_does_not_count_its_experts_ends_a_server(
    load_format: str, release: str, ends: bool, tmp_path: Path
) -> None:
    command = f"--load-format {load_format}"
    assert never_starts(_deployment(tmp_path, _CONFIG, command, sglang_version=release)) is None
    found = never_starts(_deployment(tmp_path, _uncounted(), command, sglang_version=release))
    assert (found is not None and "n_routed_experts" in found) is ends


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--tp 8 --moe-a2a-backend deepep", "an all-to-all"),
        ("--tp 8 --ep 8 --enable-eplb", "experts that move"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts"),
    ],
)
def test_what_is_not_known_is_named(command: str, said: str, tmp_path: Path) -> None:
    refused = _deployment(tmp_path, _CONFIG, command)
    assert refused.shape.model is None and refused.server.key
    assert f"nemotron_h_puzzle does not go with {said}" in refused.shape.unknown
