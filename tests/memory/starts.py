"""Deployments as the command line gives them, and their predictions."""

from dataclasses import replace
from functools import cache
from typing import Any

from runtime.server.units import GIB
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.memory.core.predict import predict
from sgl_tune.memory.core.start import Start, starts_of
from sgl_tune.memory.report import MemoryReport
from tests.sgl_tune.planning import deployments

GLM = {"model_path": "zai-org/GLM-5.1-FP8", "tp": 8, "gpu": "b200", "mem_fraction_static": 0.9}
GLM_DP = {**GLM, "dp": 8, "enable_dp_attention": True}
# Small enough to be predicted in a second.
DEMO = {"model_path": "demo-moe", "gpu": "l40s", "moe_runner_backend": "triton", "cuda_graph_max_bs": 8}

# Graphs of a few rows: a CPU's real kernels take as long as the rows are many.
DEMO_ON_CPU = {**DEMO, "chunked_prefill_size": 64, "max_running_requests": 8}


def make_starts(what_if: str | None = None, ranks: str = "distinct", **flags: Any) -> tuple[Start, ...]:
    (deployment,) = deployments(ServerFlags.of(**flags))
    return starts_of(deployment, ranks, (what_if,) if what_if else ())


def make_start(what_if: str | None = None, **flags: Any) -> Start:
    return make_starts(what_if, **flags)[0]


@cache
def predicted(start: Start) -> MemoryReport:
    return predict(start)


def of_size(start: Start, gib: float) -> Start:
    """On a GPU of that much memory."""
    return replace(start, gpu=replace(start.gpu, cuda_bytes=round(gib * GIB)))
