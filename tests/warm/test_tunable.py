"""What is said to be tunable here is what the runtime can build and run, on tensors without data."""

from pathlib import Path
from typing import Any

import pytest

from runtime.devices.meta import Meta
from runtime.server.errors import ConfigError
from runtime.start.rehearsal import Rehearsal
from sgl_tune.deployment.model_files import presets
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import cannot_tune, verdict_of
from tests.sgl_tune.modelopt import quantized
from tests.sgl_tune.planning import deployment

MEMORY = 1 << 42
BACKENDS = {"h200": ("flashinfer_cutlass", "flashinfer_mxfp4"), "b200": ("auto", "flashinfer_cutlass")}


def _plan(gpu: str, **flags: Any) -> Plan | None:
    """None where the core has no such server, or nothing of it is planned."""
    try:
        plan = make_plan(deployment(gpu=gpu, arch=None, **flags), gpus=())
    except (CheckFailed, UsageError):
        return None
    return plan if plan.caches and verdict_of(plan).tunes == "planned" else None


def _fails(plan: Plan) -> bool:
    chosen = plan.deployment
    try:
        rehearsal = Rehearsal(chosen.model, chosen.parallel, chosen.runtime, Meta(MEMORY, chosen.arch))
        rehearsal.forward(max(bucket for op in plan.target.ops for bucket in op.buckets))
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("gpu", BACKENDS)
def test_a_plan_is_tunable_where_the_runtime_runs_it(gpu: str) -> None:
    asked = [(one.name, backend) for one in presets() for backend in BACKENDS[gpu]]
    plans = {of: _plan(gpu, model_path=of[0], tp=8, moe_runner_backend=of[1]) for of in asked}
    found = {of: (cannot_tune(plan) is not None, _fails(plan)) for of, plan in plans.items() if plan}
    assert {of: told for of, told in found.items() if told[0] != told[1]} == {}
    assert len(found) > 5


def test_dense_layers_in_modelopt_fp8_are_tuned(tmp_path: Path) -> None:
    model = quantized(tmp_path, "Llama-3.1-8B", quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"])
    plan = _plan("h200", model_path=model)
    assert plan is not None and [op.op for op in plan.target.ops] == ["fp8_gemm"]
    assert cannot_tune(plan) is None and not _fails(plan)
