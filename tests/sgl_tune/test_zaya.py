"""Zaya: which of its servers end, what of them is not known, and what a request's state takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.forward.state_pool import StatePool
from runtime.server.decoders.known import model_config
from runtime.server.recurrent import TwiceConvolvedConfig
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.keys import expected_keys
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

_CONFIG = published_config("Zyphra/ZAYA1-8B-legacy")


def _deployment(folder: Path, command: str = "", **told: Any) -> Deployment:
    (folder / "config.json").write_text(json.dumps({**_CONFIG, **told}))
    flags = ServerFlags(arch="sm90", sglang_version="0.5.23")
    backend = "" if "--moe-runner-backend" in command else "--moe-runner-backend flashinfer_cutlass"
    server = f"python -m sglang.launch_server --model-path {folder} {backend} {command}"
    [one] = select_deployments(flags, command=server.split())
    return one


@pytest.mark.parametrize(
    ("command", "told", "why"),
    [
        ("--tp 2", {}, None),
        ("--tp 4", {}, "2 KV heads are not evenly those of 4 ranks"),
        ("--tp 2 --dp 2 --enable-dp-attention", {}, "splits its heads over all 2 ranks"),
        ("--tp 8", {"num_query_groups": 8, "num_key_value_heads": 8}, None),
        (
            "--tp 8",
            {"num_query_groups": 8, "num_key_value_heads": 8, "num_experts": 4},
            "4 experts are fewer",
        ),
    ],
)
def test_where_its_class_ends(command: str, told: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    found = never_starts(_deployment(tmp_path, command, **told))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("--pp-size 2", "--pp"),
        ("--tp 2 --moe-a2a-backend deepep", "an all-to-all"),
        ("--tp 2 --ep 2 --enable-eplb", "experts that move"),
        ("--moe-runner-backend flashinfer_trtllm_routed", "a MoE backend but triton"),
        ("--quantization modelopt_fp8", "quantized weights"),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 4", "drafts"),
    ],
)
def test_what_is_not_known_is_named(command: str, said: str, tmp_path: Path) -> None:
    refused = _deployment(tmp_path, command)
    assert refused.shape.model is None and refused.server.key
    assert f"zaya does not go with {said}" in refused.shape.unknown


def test_experts_are_tuned_as_those_of_others(tmp_path: Path) -> None:
    ops = expected_keys(_deployment(tmp_path, "--tp 2"))
    assert [op.op for op in ops] == ["trtllm::fused_moe::gemm1", "trtllm::fused_moe::gemm2"]


def test_a_state_is_what_two_convolutions_still_see_and_a_row() -> None:
    """mamba2_cache_params of srt/configs/zaya.py, which was asked in 0.5.14 and 0.5.23."""
    import torch

    model = model_config(_CONFIG)
    recurrent = model.recurrent
    assert isinstance(recurrent, TwiceConvolvedConfig)
    shape = recurrent.state_shape(1)
    layers = [layer for layer in range(model.num_layers) if model.is_recurrent(layer)]
    assert (shape.conv, shape.row, shape.nbytes(2, 4) * len(layers)) == ((1280, 2), 2048, 368640)
    assert recurrent.state_shape(2).conv == (640, 2)
    pool = StatePool(3, layers, shape, torch.bfloat16, torch.float32, torch.device("meta"))
    assert sum(held.nbytes for held in pool.held()) == 4 * 368640
