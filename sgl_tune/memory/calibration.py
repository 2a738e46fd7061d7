"""What a GPU holds outside torch's count, measured on the one at hand instead of taken from another."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from runtime.simulate.constants import KEPT_OF_GRAPHS, GpuConstants, constants_for
from runtime.simulate.constants import Constant as Known
from runtime.start.run_record import Run
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.measure import OTHERS_MOVED
from sgl_tune.memory.report import Constant, MemoryReport
from sgl_tune.reading import read_object

_LARGEST_FILE = 1 << 20
_MOST_BYTES = 1 << 44
_NCCL = re.compile(r"nccl:(?:[2-9]|[1-9][0-9]{1,4})")  # of so many ranks


@dataclass(frozen=True, slots=True)
class Calibration:
    gpu: str
    constants: tuple[Constant, ...]

    def to_json(self) -> dict[str, Any]:
        return {"gpu": self.gpu, "constants": [asdict(constant) for constant in self.constants]}


def calibrated(measured: MemoryReport, predicted: MemoryReport) -> Calibration:
    """What grew outside torch step by step; the prediction tells what the graphs hold."""
    run = measured.run
    if measured.verdict != "fits":
        raise WorkFailed(f"the start that calibrates ended in {run.failed_in}")
    moved = next((note for note in measured.notes if note.startswith(OTHERS_MOVED)), None)
    if moved is not None:
        raise WorkFailed(moved, "measure again while nobody else uses this GPU")
    steps = {
        "context": ("communicator", None, "before the weights are loaded"),
        "torch kernels": ("weights", "communicator", "growth when weights are filled"),
        "cublas": ("attention backend", "kv pool", "growth at the first GEMM"),
        "kernels": ("autotune", "attention backend", "growth in the first forward"),
    }
    source = f"measured on {measured.gpu}, {date.today().isoformat()}: "
    constants = [
        Constant(name, max(0, _grown(run, after, before)), source + how)
        for name, (after, before, how) in steps.items()
    ]
    constants += _of_graphs(predicted, _grown(run, "ready", "autotune"), source)
    return Calibration(measured.gpu, tuple(constants))


def _of_graphs(predicted: MemoryReport, grown: int, source: str) -> Iterator[Constant]:
    """One growth cannot tell a graph's pieces from its kernels: both are as much more or less than known."""
    known = [of for of in predicted.constants if of.name in ("graph", "graph node")]
    if not any(of.name == "graph node" and of.times for of in known):
        raise WorkFailed("the start that calibrates captured no graphs", "leave --disable-cuda-graph out")
    grown -= sum(of.bytes for of in predicted.constants if of.name in KEPT_OF_GRAPHS and of not in known)
    expected = sum(of.bytes for of in known)
    for of in known:
        each = max(0, grown) * of.bytes // expected // of.times
        how = f"growth during capture, {grown / expected:.2f} of what was known of {of.times:,}"
        yield Constant(of.name, each, source + how)


def _grown(run: Run, after: str, before: str | None) -> int:
    return _outside(run, after) - (_outside(run, before) if before else 0)


def _outside(run: Run, name: str) -> int:
    phase = next((phase for phase in run.phases if phase.name == name), None)
    if phase is None:
        raise WorkFailed(f"the start that calibrates had no phase {name!r}", "let it tune and capture")
    return phase.non_torch_bytes


def read_constants(path: Path, arch: str) -> GpuConstants:
    """`path` says what it measured; the rest is as known of the architecture."""
    known = constants_for(arch)
    data = read_object(path, "give what --calibrate or --write-constants wrote", _LARGEST_FILE)
    try:
        told = {str(of["name"]): Known(int(of["bytes"]), str(of["source"])) for of in data["constants"]}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UsageError(f"{path} is not what mem-report --calibrate writes: {error}") from error
    nccl = {int(name[5:]): of for name, of in told.items() if _NCCL.fullmatch(name)}
    outside = {name: of for name, of in told.items() if not _NCCL.fullmatch(name)}
    unknown = outside.keys() - known.outside.keys()
    if unknown or not all(0 <= constant.bytes <= _MOST_BYTES for constant in told.values()):
        names = ", ".join((*known.outside, "nccl:RANKS"))
        raise UsageError(f"{path}: constants are {names}, each of 0 to 16 TiB", "write it with --calibrate")
    return replace(known, outside={**known.outside, **outside}, nccl={**known.nccl, **nccl})
