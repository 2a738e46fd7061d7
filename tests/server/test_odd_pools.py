"""Pools of servers that are asked otherwise than usual, as SGLang's own code of each release makes them: the
figures are its answers (`python -m tests.oracle.random_pools`)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.forward.kv_pool import KVPool, make_kv_pool
from runtime.server.errors import NoRoomForTokens
from runtime.server.parallel import stage_layers
from runtime.server.pool_plan import FreeMemory, PoolPlan, plan_pool
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.keys.starts import never_starts
from tests.memory.checkpoints import published_config

_META = torch.device("meta")
_AWQ, _GPT, _STEP = "Qwen/Qwen3-30B-A3B-AWQ", "openai/gpt-oss-20b", "stepfun-ai/Step-3.5-Flash"
_NEXT, _GEMMA = "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8", "google/gemma-4-31B-it"
_DECODE = "--disaggregation-mode decode"


def _deployed(folder: Path, name: str, argv: str, release: str) -> Deployment:
    config = published_config(name)
    (folder / "config.json").write_text(json.dumps(config))
    command = ["python", "-m", "sglang.launch_server", "--model-path", str(folder), *argv.split()]
    return select_deployments(ServerFlags(gpu="H200", sglang_version=release), command=command)[0]


def _made(found: Deployment, rest: int, stage: int = 0) -> tuple[PoolPlan, KVPool]:
    model, parallel = found.model, found.parallel
    layers, free = stage_layers(model.num_layers, parallel, stage), FreeMemory(rest, rest)
    runtime = replace(found.runtime, images_mib=0)
    plan = plan_pool(free, 1.0, model, parallel, runtime, layers)
    return plan, make_kv_pool(plan, model, parallel, layers, _META)


@pytest.mark.parametrize(
    ("release", "argv", "rows"),
    [
        ("0.5.12", f"{_DECODE} --max-running-requests 7", 22),
        ("0.5.23", f"{_DECODE} --max-running-requests 7", 22),
        ("0.5.23", f"{_DECODE} --max-running-requests 33", 34),
        ("0.5.23", f"{_DECODE} --max-running-requests 33 --disaggregation-decode-extra-slots 5", 39),
        ("0.5.23", f"{_DECODE} --max-running-requests 64 --tp 4 --dp 2 --enable-dp-attention", 97),
        ("0.5.23", "--max-running-requests 7", 8),
        ("0.5.23", f"{_DECODE} --speculative-algorithm NGRAM", 49),
        ("0.5.13", f"{_DECODE} --speculative-algorithm NGRAM", 49),
        ("0.5.23", f"{_DECODE} --speculative-algorithm NGRAM --max-running-requests 7", 22),
    ],
)
def test_a_decode_server_has_rows_for_requests_that_arrive(
    tmp_path: Path, release: str, argv: str, rows: int
) -> None:
    _, pool = _made(_deployed(tmp_path, _AWQ, argv, release), 20 << 30)
    assert pool.requests.table.shape[0] == rows


def test_states_of_requests_that_arrive_are_kept_too(tmp_path: Path) -> None:
    argv = f"{_DECODE} --tp 8 --max-running-requests 20"
    plan, _ = _made(_deployed(tmp_path, _NEXT, argv, "0.5.23"), 20 << 30)
    assert plan.states is not None and plan.states.slots == 20 + 40 and plan.max_running_requests == 20


@pytest.mark.parametrize(
    ("release", "name", "argv", "stage", "rest", "tokens"),
    [
        ("0.5.12", _GPT, "--tp 2 --swa-full-tokens-ratio 1.0", 1, 2083362388, 226059),
        ("0.5.21", _GPT, "--tp 2 --swa-full-tokens-ratio 1.0", 1, 2083362388, 254316),
    ],
)
def test_a_stage_behind_windows_once_had_a_layer_of_the_next(
    tmp_path: Path, release: str, name: str, argv: str, stage: int, rest: int, tokens: int
) -> None:
    plan, _ = _made(_deployed(tmp_path, name, f"{argv} --pp-size 3", release), rest, stage)
    assert plan.tokens == tokens


def test_the_buffers_of_that_layer_are_there(tmp_path: Path) -> None:
    found = _deployed(tmp_path, _STEP, "--tp 2 --pp-size 3 --max-total-tokens 700", "0.5.15")
    _, pool = _made(found, 4892413279)
    cache: Any = pool.cache
    held = [*cache._keys.values(), *cache._values.values()]
    assert sum(one.nbytes for one in held) == 19529728


@pytest.mark.parametrize(("release", "ends"), [("0.5.15", False), ("0.5.16", True), ("0.5.23", True)])
def test_a_pool_behind_windows_that_holds_no_request_ends_a_start(
    tmp_path: Path, release: str, ends: bool
) -> None:
    found = _deployed(tmp_path, _GEMMA, "--tp 2 --max-total-tokens 700", release)
    if not ends:
        assert _made(found, 21 << 30)[0].sliding_tokens == 560
        return
    with pytest.raises(NoRoomForTokens, match="560 tokens behind windows of"):
        _made(found, 21 << 30)


@pytest.mark.parametrize(("release", "ends"), [("0.5.16", True), ("0.5.17", False)])
def test_a_stage_without_keys_once_ended(tmp_path: Path, release: str, ends: bool) -> None:
    found = _deployed(tmp_path, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "--pp-size 13", release)
    assert (never_starts(found) or "").endswith("divides memory by what one costs") == ends
