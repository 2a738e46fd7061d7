"""A start measured on the GPU at hand, in a process of its own that may die: its file tells what it cost."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

from runtime.server.backends import backend_row
from sgl_tune.cli.out import Output
from sgl_tune.deployment.versions import held_bytes
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.predict import run_start
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.run_report import read_report
from sgl_tune.memory.start import Start, unpacked
from sgl_tune.processes.child import Child, leave
from sgl_tune.processes.crew import Crew
from sgl_tune.processes.scratch import scratch
from sgl_tune.units import memory_bytes
from sgl_tune.writing import written

_POLL_SECONDS = 0.2
_DRIFT = 64 << 20
_START = "start"
OTHERS_MOVED = "what other processes hold of this GPU changed meanwhile"
SNAPSHOT_SUFFIX = ".snapshot.pickle"


def measure(
    start: Start,
    file: Path,
    out: Output,
    snapshot: Path | None = None,
    device: Literal["cuda", "cpu"] = "cuda",
) -> MemoryReport:
    """`file` is written as the start goes on. A start that dies of memory leaves a snapshot beside it.

    What other processes hold of the GPU is taken off what is counted, and must not change meanwhile.
    """
    _check_runs(start)
    others = (held_bytes() or 0) if device == "cuda" else 0
    with written(file) as part:
        part.touch()
    file.unlink()
    with scratch() as private, Crew(__name__, 1, private) as crew:
        (child,) = crew.members
        where = None if snapshot is None else str(snapshot)
        child.send(_START, start=start.packed(), file=str(file), snapshot=where, device=device, others=others)
        _wait(crew, file, out)
        fate = child.fate if child.code else None
        child.show_output()
        remedy = child.last_words
    if not file.exists():
        raise WorkFailed(f"the measuring process {fate} before it began", remedy)
    report = read_report(file)
    if others:
        report = report.with_note(f"other processes hold {memory_bytes(others)} of this GPU: not counted")
    moved = ((held_bytes() or 0) if device == "cuda" else 0) - others
    if abs(moved) > _DRIFT:
        report = report.with_note(f"{OTHERS_MOVED} by {memory_bytes(abs(moved))}: figures err by as much")
    if report.verdict == "fits" and fate:
        raise WorkFailed(f"the measuring process {fate}; {file} holds what it measured", remedy)
    return report


def _check_runs(start: Start) -> None:
    asked = start.deployment.server
    if start.runtime.moe_a2a_backend == "deepep":
        flag = "--moe-a2a-backend deepep"
    elif backend_row(start.runtime.moe_runner_backend).is_predicted:
        flag = f"--moe-runner-backend {asked.moe_runner_backend}"
    else:
        return
    raise UsageError(
        f"{flag} cannot be measured: its kernels are not here", "without --measure it is predicted"
    )


def _wait(crew: Crew, file: Path, out: Output) -> None:
    with out.progress("measuring") as progress:
        while not crew.ended:
            crew.events(_POLL_SECONDS)
            progress.advance(0, _last_phase(file))


def _last_phase(file: Path) -> str:
    if not file.exists():
        return "starting"
    begun = [line for line in file.read_text(errors="replace").splitlines() if '"begin"' in line]
    return begun[-1].partition('"phase": "')[2].partition('"')[0] if begun else "starting"


def main(child: Child) -> None:
    """What fails inside a phase is in the file already; a traceback is for who asked for it."""
    asked = child.command()
    start = unpacked(asked["start"])
    snapshot = None if asked["snapshot"] is None else Path(asked["snapshot"])
    try:
        _start(start, Path(asked["file"]), snapshot, asked["device"], asked["others"])
    except Exception as error:
        if os.environ.get("SGL_TUNE_TRACEBACK"):
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        leave(1)


def _start(start: Start, file: Path, snapshot: Path | None, kind: str, others: int) -> None:
    from runtime.devices.cpu import Cpu
    from runtime.devices.cuda import Cuda
    from runtime.start.phases import PhaseRecorder

    device = Cuda(history=True, others=others) if kind == "cuda" else Cpu()
    recorder = PhaseRecorder(device, file, start.about())
    with device.active():
        run_start(start, device, recorder)
        if recorder.failure is not None and recorder.failure.out_of_memory is not None:
            snapshot = snapshot or file.with_suffix(SNAPSHOT_SUFFIX)
        if snapshot is not None and kind == "cuda":
            _dump_snapshot(snapshot)
    recorder.close()


def _dump_snapshot(path: Path) -> None:
    import torch

    torch.cuda.memory._dump_snapshot(str(path))
