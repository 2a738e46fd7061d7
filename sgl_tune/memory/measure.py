"""A start measured on the GPU at hand, in a process of its own that may die: its file tells what it cost."""

from __future__ import annotations

import os
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sgl_tune.cli.out import Output
from sgl_tune.errors import WorkFailed
from sgl_tune.memory.files import written
from sgl_tune.memory.predict import run_start
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.run_report import read_report
from sgl_tune.memory.start import Start

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

_POLL_SECONDS = 0.2
SNAPSHOT_SUFFIX = ".snapshot.pickle"


def measure(
    start: Start,
    file: Path,
    out: Output,
    snapshot: Path | None = None,
    device: Literal["cuda", "cpu"] = "cuda",
) -> MemoryReport:
    """`file` is written as the start goes on. A start that dies of memory leaves a snapshot beside it."""
    with written(file) as part:
        part.touch()
    file.unlink()
    child = get_context("spawn").Process(
        target=_run, args=(start, file, snapshot, device), name="mem-report --measure"
    )
    child.start()
    try:
        _wait(child, file, out)
    finally:
        if child.is_alive():
            child.kill()
            child.join()
    if not file.exists():
        raise WorkFailed(f"the measuring process ended with {child.exitcode} before it began")
    report = read_report(file)
    if report.verdict == "fits" and child.exitcode:
        raise WorkFailed(f"the measuring process ended with {child.exitcode}; {file} holds what it measured")
    return report


def _wait(child: BaseProcess, file: Path, out: Output) -> None:
    with out.progress("measuring") as progress:
        while child.is_alive():
            time.sleep(_POLL_SECONDS)
            progress.advance(0, _last_phase(file))
        child.join()


def _last_phase(file: Path) -> str:
    if not file.exists():
        return "starting"
    begun = [line for line in file.read_text(errors="replace").splitlines() if '"begin"' in line]
    return begun[-1].partition('"phase": "')[2].partition('"')[0] if begun else "starting"


def _run(start: Start, file: Path, snapshot: Path | None, kind: str) -> None:
    """What fails inside a phase is in the file already; a traceback is for who asked for it."""
    try:
        _start(start, file, snapshot, kind)
    except Exception as error:
        if os.environ.get("SGL_TUNE_TRACEBACK"):
            raise
        sys.exit(f"{type(error).__name__}: {error}")


def _start(start: Start, file: Path, snapshot: Path | None, kind: str) -> None:
    from runtime.devices.cpu import Cpu
    from runtime.devices.cuda import Cuda
    from runtime.start.phases import PhaseRecorder

    device = Cuda(history=True) if kind == "cuda" else Cpu()
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
