"""Measure starts of the core on this machine's GPUs, in processes that may die; each writes a file."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from runtime.record.checked import from_plain, to_plain
from runtime.server.backends import backend_row
from runtime.server.bounds import is_number
from runtime.server.units import MIB
from sgl_tune.cli.out import Output
from sgl_tune.deployment.versions import asked_driver
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.memory.core.predict import read_report, run_start
from sgl_tune.memory.core.start import MEASURED_MOE, Start
from sgl_tune.memory.report import MemoryReport
from sgl_tune.processes.child import Child, leave
from sgl_tune.processes.crew import Crew, Member
from sgl_tune.processes.scratch import scratch
from sgl_tune.units import memory_bytes
from sgl_tune.writing import written

DeviceKind = Literal["cuda", "cpu"]
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 10.0
_DRIFT = 64 << 20
OTHERS_MOVED = "what other processes hold of this GPU changed during the start"
SNAPSHOT_SUFFIX = ".snapshot.pickle"


def measure(
    starts: Sequence[Start],
    file: Path,
    out: Output,
    snapshot: Path | None = None,
    device: DeviceKind = "cuda",
) -> tuple[MemoryReport, ...]:
    """Measure starts and return a report for each. Several starts are all ranks of one server: each has a
    process and a GPU, and collectives are real. A single start computes its peers' share. `file` is
    written while the start runs. The files and snapshots of ranks other than the first have the rank's
    number in their names. A start that runs out of memory leaves a snapshot beside its file."""
    is_alone = len(starts) == 1
    numbered = ((start, 0 if is_alone else start.rank) for start in starts)
    ranks = [_Rank(start, file_of(file, n), n, snapshot and file_of(snapshot, n)) for start, n in numbered]
    for rank in ranks:
        _check_runs(rank.start)
        with written(rank.file):
            pass
        rank.file.unlink()
    others = [rank.held(device) for rank in ranks]
    with scratch() as private, Crew(__name__, len(ranks), private) as crew:
        meeting = None if is_alone else str(private.folder / "meeting")
        for rank, member, held in zip(ranks, crew.members, others, strict=True):
            member.send("start", **rank.job(), device=device, others=held, meeting=meeting)
        _wait(crew, ranks[0].file, out)
        ends = [_end_of(member) for member in crew.members]
    of_all = zip(ranks, ends, others, strict=True)
    return tuple(_report(rank, *end, held, device) for rank, end, held in of_all)


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

    def job(self) -> dict[str, Any]:
        snapshot = None if self.snapshot is None else str(self.snapshot)
        start = to_plain(self.start)
        return {"start": start, "file": str(self.file), "snapshot": snapshot, "gpu": self.gpu}


def _end_of(member: Member) -> tuple[str | None, str | None]:
    """Return how the process failed, and its last words. The first is "" if another process had died
    before."""
    if member.code is None:
        return "", None
    member.show_output()
    return member.fate if member.code else None, member.last_words


def _report(
    rank: _Rank, fate: str | None, remedy: str | None, others: int, device: DeviceKind
) -> MemoryReport:
    file = rank.file
    if not file.exists():
        how = fate or "was ended with another"
        raise WorkFailed(f"the process that measures rank {rank.start.rank} {how} before it began", remedy)
    report = read_report(file)
    if others:
        left_out = f"{memory_bytes(others)} that other processes hold of this GPU"
        report = report.with_notes(f"not counted: {left_out}")
    moved = rank.held(device) - others
    if abs(moved) > _DRIFT:
        off = f"{OTHERS_MOVED} by {memory_bytes(abs(moved))}: every figure may be off by as much"
        report = report.with_notes(warnings=[off])
    if report.verdict == "fits" and fate:
        raise WorkFailed(f"the measuring process {fate}; {file} holds what it measured", remedy)
    return report


def _check_runs(start: Start) -> None:
    weights, by_cutlass = start.model.quantized, start.runtime.kernels.moe == MEASURED_MOE
    untaken = by_cutlass and weights.experts is not None and weights.method != "modelopt_fp8"
    if untaken or not backend_row(start.backend).kernels:
        raise UsageError(
            f"--moe-runner-backend {start.backend} cannot be measured: its kernels are not here",
            "leave out --measure to predict it",
        )
    if by_cutlass and start.model.moe and find_spec("flashinfer") is None:
        raise UsageError(
            "this model's experts are measured with FlashInfer, which is not installed",
            "pip install 'sgl-tune[flashinfer]', or leave out --measure to predict it",
        )


def _wait(crew: Crew, file: Path, out: Output) -> None:
    """Wait until all processes have ended. When one dies, the others get some seconds to end too."""
    until = None
    with out.progress("measuring") as progress:
        while len(crew.ended) < len(crew.members) and (until is None or time.monotonic() < until):
            crew.events(_POLL_SECONDS)
            progress.advance(0, _last_phase(file))
            if until is None and any(member.code for member in crew.ended):
                until = time.monotonic() + _GRACE_SECONDS


def _last_phase(file: Path) -> str:
    if not file.exists():
        return "starting"
    begun = [line for line in file.read_text(errors="replace").splitlines() if '"begin"' in line]
    return begun[-1].partition('"phase": "')[2].partition('"')[0] if begun else "starting"


def main(child: Child) -> None:
    """Run one start in this process. A failure inside a phase is already written to the file."""
    asked = child.command()
    snapshot = None if asked["snapshot"] is None else Path(asked["snapshot"])
    try:
        _start(from_plain(Start, asked["start"], "start"), Path(asked["file"]), snapshot, asked)
    except Exception as error:
        if os.environ.get("SGL_TUNE_TRACEBACK"):
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        leave(1)


def _start(start: Start, file: Path, snapshot: Path | None, asked: dict[str, Any]) -> None:
    import torch

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
            torch.cuda.memory._dump_snapshot(str(snapshot))
    recorder.close()
    if recorder.failure is not None and asked["meeting"] is not None:
        leave(1)  # the others wait for this one


def _meeting(place: str | None) -> str | None:
    """Return the address where the ranks meet. They use the loopback, which no other machine can reach."""
    if place is None:
        return None
    os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    return f"file://{place}"


def held_bytes(gpu: int = 0) -> int | None:
    """Return the bytes that processes hold of a GPU, by this process's numbering; None without a driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    listed = [str(gpu)] * (gpu + 1) if visible is None else visible.split(",")
    name = listed[gpu].strip() if gpu < len(listed) else ""
    told = asked_driver("memory.used", "-i", name).strip()
    return int(told) * MIB if is_number(told) else None
