"""A start measured on the GPUs at hand, in processes that may die: their files tell what it cost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sgl_tune.cli.out import Output
from sgl_tune.deployment.versions import held_bytes
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.predict import run_start
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.run_report import read_report
from sgl_tune.memory.start import Start, unpacked
from sgl_tune.processes.child import Child, leave
from sgl_tune.processes.crew import Crew, Member
from sgl_tune.processes.scratch import scratch
from sgl_tune.units import memory_bytes
from sgl_tune.writing import written

DeviceKind = Literal["cuda", "cpu"]
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0
_DRIFT = 64 << 20
_START = "start"
OTHERS_MOVED = "what other processes hold of this GPU changed meanwhile"
SNAPSHOT_SUFFIX = ".snapshot.pickle"


def measure(
    start: Start,
    file: Path,
    out: Output,
    snapshot: Path | None = None,
    device: DeviceKind = "cuda",
) -> MemoryReport:
    """`file` is written as the start goes on. A start that dies of memory leaves a snapshot beside it.

    Its peers, if it has some, are arithmetic. What other processes hold of the GPU is taken off what is
    counted, and must not change meanwhile.
    """
    [report] = _measured([_Rank(start, file, 0, snapshot)], out, device, together=False)
    return report


def measure_together(
    starts: Sequence[Start],
    file: Path,
    out: Output,
    snapshot: Path | None = None,
    device: DeviceKind = "cuda",
) -> tuple[MemoryReport, ...]:
    """All ranks of a server, a process and a GPU each, with the collectives among them. The files of all but
    the first have their rank's number in their names, and their snapshots too.
    """
    ranks = [
        _Rank(start, file_of(file, start.rank), start.rank, snapshot and file_of(snapshot, start.rank))
        for start in starts
    ]
    return _measured(ranks, out, device, together=True)


def file_of(file: Path, rank: int) -> Path:
    return file.with_suffix(f".{rank}{file.suffix}") if rank else file


@dataclass(frozen=True, slots=True)
class _Rank:
    start: Start
    file: Path
    gpu: int
    snapshot: Path | None = None

    def held(self, device: DeviceKind) -> int:
        return (held_bytes(self.gpu) or 0) if device == "cuda" else 0


def _measured(
    ranks: Sequence[_Rank], out: Output, device: DeviceKind, together: bool
) -> tuple[MemoryReport, ...]:
    for rank in ranks:
        _check_runs(rank.start)
        with written(rank.file):
            pass
        rank.file.unlink()
    others = [rank.held(device) for rank in ranks]
    with scratch() as private, Crew(__name__, len(ranks), private) as crew:
        meeting = str(private.folder / "meeting") if together else None
        for rank, member, held in zip(ranks, crew.members, others, strict=True):
            member.send(
                _START,
                start=rank.start.with_own_kernels().packed(),
                file=str(rank.file),
                snapshot=None if rank.snapshot is None else str(rank.snapshot),
                device=device,
                gpu=rank.gpu,
                others=held,
                meeting=meeting,
            )
        _wait(crew, [rank.file for rank in ranks], out)
        ends = [_end_of(member) for member in crew.members]
    of_all = zip(ranks, ends, others, strict=True)
    return tuple(_report(rank, end, held, device) for rank, end, held in of_all)


@dataclass(frozen=True, slots=True)
class _End:
    """`fate` where it did not end well; it is empty where it had not ended when another was dead."""

    fate: str | None
    remedy: str | None


def _end_of(member: Member) -> _End:
    if member.code is None:
        return _End("", None)
    member.show_output()
    return _End(member.fate if member.code else None, member.last_words)


def _report(rank: _Rank, end: _End, others: int, device: DeviceKind) -> MemoryReport:
    file = rank.file
    if not file.exists():
        fate = end.fate or "was ended with another"
        raise WorkFailed(
            f"the process that measures rank {rank.start.rank} {fate} before it began", end.remedy
        )
    report = read_report(file)
    if others:
        report = report.with_note(f"other processes hold {memory_bytes(others)} of this GPU: not counted")
    moved = rank.held(device) - others
    if abs(moved) > _DRIFT:
        report = report.with_note(f"{OTHERS_MOVED} by {memory_bytes(abs(moved))}: figures err by as much")
    if report.verdict == "fits" and end.fate:
        raise WorkFailed(f"the measuring process {end.fate}; {file} holds what it measured", end.remedy)
    return report


def _check_runs(start: Start) -> None:
    backend = start.deployment.server.backend
    if backend.is_predicted:
        raise UsageError(
            f"--moe-runner-backend {backend.name} cannot be measured: its kernels are not here",
            "without --measure it is predicted",
        )


def _wait(crew: Crew, files: Sequence[Path], out: Output) -> None:
    """Until all have ended; where one dies the others wait for it, and are told off after a while."""
    until = None
    with out.progress("measuring") as progress:
        while len(crew.ended) < len(crew.members) and (until is None or time.monotonic() < until):
            crew.events(_POLL_SECONDS)
            progress.advance(0, _last_phase(files[0]))
            if until is None and any(member.code for member in crew.ended):
                until = time.monotonic() + _GRACE_SECONDS


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
        _start(start, Path(asked["file"]), snapshot, asked)
    except Exception as error:
        if os.environ.get("SGL_TUNE_TRACEBACK"):
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        leave(1)


def _start(start: Start, file: Path, snapshot: Path | None, asked: dict[str, Any]) -> None:
    from runtime.devices.cpu import Cpu
    from runtime.devices.cuda import Cuda
    from runtime.start.phases import PhaseRecorder

    is_gpu = asked["device"] == "cuda"
    device = Cuda(asked["gpu"], history=True, others=asked["others"]) if is_gpu else Cpu()
    recorder = PhaseRecorder(device, file, start.about())
    with device.active():
        run_start(start, device, recorder, _meeting(asked["meeting"]))
        if recorder.failure is not None and recorder.failure.out_of_memory is not None:
            snapshot = snapshot or file.with_suffix(SNAPSHOT_SUFFIX)
        if snapshot is not None and is_gpu:
            _dump_snapshot(snapshot)
    recorder.close()
    if recorder.failure is not None and asked["meeting"] is not None:
        leave(1)  # the others wait for this one


def _meeting(place: str | None) -> str | None:
    """Where all ranks meet; they talk over the loopback, and nobody else hears."""
    if place is None:
        return None
    os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    return f"file://{place}"


def _dump_snapshot(path: Path) -> None:
    import torch

    torch.cuda.memory._dump_snapshot(str(path))
