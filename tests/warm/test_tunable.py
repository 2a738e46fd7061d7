"""What is said to be tunable here is what the runtime can build and run, on tensors without data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.devices.meta import Meta
from runtime.server.errors import ConfigError
from runtime.start.rehearsal import Rehearsal
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.resolve import resolve_deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.advice import advice
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.tunable import cannot_tune
from sgl_tune.keys.verdict import gaps_of
from tests.oracle.published import published, target_models, write_checkpoints

MEMORY = 1 << 42
_BY_SIZE = "Kimi-K2-Thinking"  # whose integers have no kernels here


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoints(folder)
    return folder


def _whole_plans(gpu: str, release: str) -> Iterator[Plan]:
    """As the server is, or else as it is advised to be."""
    for model in target_models():
        flags = ServerFlags(model_path=published()[model].path, gpu=gpu, sglang_version=release, tp=8)
        try:
            plan = make_plan(resolve_deployment(flags, environ={}), gpus=())
        except UsageError:
            continue
        if not plan.caches or gaps_of(plan):
            found = advice(plan)
            plan = found.plan if found else plan
        if plan.caches and not gaps_of(plan):
            yield plan


def _fails(plan: Plan) -> bool:
    chosen = plan.deployment
    try:
        rehearsal = Rehearsal(chosen.model, chosen.parallel, chosen.runtime, Meta(MEMORY, chosen.arch))
        rehearsal.forward(max(bucket for op in plan.target.ops for bucket in op.buckets))
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("release", ["0.5.17", "0.5.23"])
@pytest.mark.parametrize("gpu", ["H200", "B200"])
def test_a_plan_is_tunable_where_the_runtime_runs_it(
    gpu: str, release: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoints)
    outcomes = [
        (plan.deployment.model_path, cannot_tune(plan) is not None, _fails(plan))
        for plan in _whole_plans(gpu, release)
        if _BY_SIZE not in plan.deployment.model_path
    ]
    assert [model for model, said, real in outcomes if said != real] == []
    assert {said for _, said, _ in outcomes} == ({True, False} if gpu == "B200" else {False})
    assert len(outcomes) > 12


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "said"),
    [
        ("nvidia/Qwen3-235B-A22B-FP8", "H200", {"moe_a2a_backend": "deepep"}, "sends no rows by deepep"),
        (
            "nvidia/MiniMax-M2.5-NVFP4",
            "B200",
            {"moe_runner_backend": "flashinfer_cutlass"},
            "calls flashinfer_cutlass plain and in modelopt_fp8, not in modelopt_fp4",
        ),
    ],
)
def test_what_this_runtime_has_no_kernels_of_is_said_before(
    model: str, gpu: str, flags: dict[str, Any], said: str, checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoints)
    path = published()[model].path
    asked = ServerFlags(model_path=path, gpu=gpu, sglang_version="0.5.21", tp=8, **flags)
    plan = make_plan(resolve_deployment(asked, environ={}), gpus=())
    assert plan.caches and said in str(cannot_tune(plan))


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("nvidia/Mixtral-8x7B-Instruct-v0.1-FP8", {"tp": 4}),
        ("nvidia/Qwen3-235B-A22B-FP8", {"tp": 8, "moe_runner_backend": "deep_gemm"}),
    ],
)
def test_layers_beside_experts_that_nobody_tunes_are_tuned(
    model: str, flags: dict[str, Any], checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoints)
    asked = ServerFlags(model_path=published()[model].path, gpu="H200", sglang_version="0.5.21", **flags)
    plan = make_plan(resolve_deployment(asked, environ={}), gpus=())
    assert [op.op for op in plan.target.ops] == ["fp8_gemm"]
    assert cannot_tune(plan) is None and not _fails(plan)


def test_experts_whose_biases_sglang_leaves_out_are_tuned_as_it_calls_them(
    checkpoints: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkpoints)
    path, backend = published()["lmsys/gpt-oss-20b-bf16"].path, "flashinfer_cutlass"
    asked = ServerFlags(model_path=path, gpu="H200", sglang_version="0.5.21", moe_runner_backend=backend)
    plan = make_plan(resolve_deployment(asked, environ={}), gpus=())
    assert plan.caches and cannot_tune(plan) is None and not _fails(plan)
