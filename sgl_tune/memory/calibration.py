"""What a GPU holds outside torch's count, measured on the one at hand instead of taken from another."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from runtime.run_record import Phase, Run
from runtime.simulate.constants import Constant as Known
from runtime.simulate.constants import GpuConstants, constants_for
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.report import Constant, Report

_LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Calibration:
    gpu: str
    constants: tuple[Constant, ...]

    def to_json(self) -> dict[str, Any]:
        return {"gpu": self.gpu, "constants": [asdict(constant) for constant in self.constants]}


def calibrated(report: Report) -> Calibration:
    """From a measured start: what grew outside torch, step by step."""
    run = report.run
    if report.verdict != "fits":
        raise WorkFailed(f"the start that calibrates ended in {run.failed_in}: {report.run.failure}")
    decode, prefill = len(report.sizes.decode_graphs), len(report.sizes.prefill_graphs)
    context = _outside(run, "communicator")
    cublas = _outside(run, "attention backend") - _outside(run, "kv pool")
    graph = (_outside(run, "decode graphs") - _outside(run, "prefill graphs")) // max(1, decode)
    kernels = _outside(run, "ready") - context - cublas - graph * (decode + prefill)
    source = f"measured on {report.gpu}, {date.today().isoformat()}: "
    how = {
        "context": (context, "before the weights are loaded"),
        "cublas": (cublas, "growth at the first product"),
        "graph": (graph, f"growth over {decode} decode graphs"),
        "kernels": (max(0, kernels), "growth during autotune and capture, less the graphs"),
    }
    return Calibration(report.gpu, tuple(Constant(name, n, source + text) for name, (n, text) in how.items()))


def _outside(run: Run, name: str) -> int:
    phase: Phase | None = next((phase for phase in run.phases if phase.name == name), None)
    if phase is None:
        raise WorkFailed(f"the start that calibrates had no phase {name!r}", "let it capture graphs")
    return phase.non_torch_bytes


def read_constants(path: Path, arch: str) -> GpuConstants:
    """`path` says what it measured; the rest is as known of the architecture."""
    known = constants_for(arch)
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path} is too large to be what --calibrate wrote")
        data = json.loads(path.read_text(encoding="utf-8"))
        outside = {str(of["name"]): Known(int(of["bytes"]), str(of["source"])) for of in data["constants"]}
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not what mem-report --calibrate writes: {error}") from error
    unknown = outside.keys() - known.outside.keys()
    if unknown or any(constant.bytes < 0 for constant in outside.values()):
        names = ", ".join(known.outside)
        raise UsageError(f"{path}: constants are {names}, none below zero", "write it with --calibrate")
    return GpuConstants(known.gemm_workspace, {**known.outside, **outside}, known.nccl)
