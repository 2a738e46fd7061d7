"""From what was asked on the command line to one report: predicted, measured, read from a file or a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output, to_json
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.memory.calibration import Calibration, calibrated, read_constants
from sgl_tune.memory.compare import beside_measured
from sgl_tune.memory.from_log import with_log
from sgl_tune.memory.log_gap import constants_of
from sgl_tune.memory.measure import SNAPSHOT_SUFFIX, file_of, measure, measure_together
from sgl_tune.memory.options import MemoryOptions
from sgl_tune.memory.predict import predict
from sgl_tune.memory.ranks import ALL, DISTINCT
from sgl_tune.memory.report import MemoryReport, worst
from sgl_tune.memory.run_report import read_report
from sgl_tune.memory.server_args import flags_of_log, not_taken
from sgl_tune.memory.start import Start
from sgl_tune.memory.study import Question, Study, study
from sgl_tune.memory.target import target_gpu
from sgl_tune.memory.what_if import parse_sweep, parse_what_if
from sgl_tune.processes.scratch import scratch
from sgl_tune.server_log.rank_log import ServerLog
from sgl_tune.units import memory_bytes
from sgl_tune.writing import write_text

_MISSED = "the prediction is without what the log's server was set to besides,"


@dataclass(frozen=True, slots=True)
class Answer:
    report: MemoryReport
    sweep: Mapping[str, MemoryReport] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.report.to_json(),
            "sweep": {name: report.to_json() for name, report in self.sweep.items()},
        }


def answer(asked: MemoryOptions, out: Output) -> Answer:
    if sum((asked.measure, asked.from_run is not None, asked.from_log is not None)) > 1:
        raise UsageError("--measure, --from and --from-log are three sources of one report", "give one")
    if asked.write_constants is not None and asked.from_log is None:
        raise UsageError("--write-constants writes what a server's log tells", "add --from-log LOG")
    if asked.from_run is not None:
        return _from_run(asked, asked.from_run, out)
    if asked.from_log is not None:
        return _from_log(asked, asked.from_log.log, out)
    if asked.measure and not local_gpus():
        raise UsageError("--measure needs a GPU, and there is none here", "without it the start is predicted")
    found = _study(asked, asked.flags, out)
    if asked.measure:
        return _measured(asked, found, out)
    return _predicted(asked, found)


def calibrate(asked: MemoryOptions, out: Output) -> Calibration:
    """Measure a start of the deployment's first layers on this GPU, into a file that --constants reads."""
    if not local_gpus():
        raise UsageError("--calibrate measures a GPU, and there is none here")
    start = question_of(asked, asked.flags).starts()[0].shortened()
    with scratch() as private:
        found = calibrated(measure(start, private.folder / "run.jsonl", out), predict(start))
    if asked.out is not None:
        write_text(asked.out, to_json(found.to_json()) + "\n")
    return found


def question_of(asked: MemoryOptions, flags: ServerFlags, total_bytes: int | None = None) -> Question:
    here = local_gpus()
    gpu = target_gpu(None if asked.measure else flags.gpu, asked.gpu_memory, flags.arch, here)
    if total_bytes is not None:
        gpu = replace(gpu, gpu=replace(gpu.gpu, cuda_bytes=total_bytes))
    return Question(
        flags=replace(flags, gpu=None, arch=None),
        gpu=gpu,
        command=asked.command,
        deployment=asked.deployment,
        ranks=asked.ranks,
        constants=read_constants(asked.constants, gpu.gpu.arch) if asked.constants else None,
    )


def _study(asked: MemoryOptions, flags: ServerFlags, out: Output, total_bytes: int | None = None) -> Study:
    """Predict the start, each what-if and each step of the sweep."""
    what_ifs = [parse_what_if(text) for text in asked.what_if]
    sweep = parse_sweep(asked.sweep) if asked.sweep else ()
    return study(question_of(asked, flags, total_bytes), what_ifs, sweep, out)


def _predicted(asked: MemoryOptions, found: Study) -> Answer:
    if asked.snapshot is not None:
        predict(found.start, asked.snapshot)
    return Answer(found.report, found.sweep)


def _measured(asked: MemoryOptions, found: Study, out: Output) -> Answer:
    with scratch() as private:
        file = asked.out or private.folder / "run.jsonl"
        together, snapshot = _all_here(asked, found.start), asked.snapshot
        if together:
            ranks = measure_together(together, file, out, snapshot)
            report = replace(_beside_prediction(_lead(ranks), found, together), ranks=ranks)
            file = file_of(file, report.rank)
            snapshot = snapshot and file_of(snapshot, report.rank)
        else:
            measured = measure(found.start, file, out, snapshot)
            report = _beside_prediction(measured, found)
        snapshot = snapshot or file.with_suffix(SNAPSHOT_SUFFIX)
        if snapshot.exists() and (asked.snapshot or asked.out):
            note = f"torch's memory snapshot of {report.rank_name}: {snapshot}"
            report = replace(report, notes=(*report.notes, note))
    return Answer(report, found.sweep)


def _all_here(asked: MemoryOptions, start: Start) -> tuple[Start, ...]:
    """Every rank of the server, where this machine has a GPU for each and nobody asked for one of them."""
    ranks = start.parallel.world_size
    if ranks == 1 or asked.ranks not in (DISTINCT, ALL) or ranks > len(local_gpus()):
        return ()
    return tuple(replace(start, rank=rank, most_tokens=None) for rank in range(ranks))


def _lead(ranks: Sequence[MemoryReport]) -> MemoryReport:
    """The rank that ran out of memory: the others ended with it."""
    return next((report for report in ranks if report.oom is not None), worst(ranks))


def _from_run(asked: MemoryOptions, file: Path, out: Output) -> Answer:
    measured = read_report(file)
    if not asked.names_a_start:
        return Answer(measured)
    found = _study(asked, asked.flags, out, measured.total_bytes)
    return Answer(_beside_prediction(measured, found), found.sweep)


def _beside_prediction(measured: MemoryReport, found: Study, together: Sequence[Start] = ()) -> MemoryReport:
    """Compared with a prediction of what was measured, which is less than a server's start."""
    gpu = replace(found.start.gpu, cuda_bytes=measured.total_bytes)
    twin = found.start.alone()
    if together:
        twin = replace(found.start.as_measured(), rank=measured.rank)
    notes = ["measured without profiling tactics, as a start does whose cache is warm"]
    nccl = sum(constant.bytes for constant in found.report.constants if constant.name.startswith("nccl"))
    if together:
        notes.append(
            f"{len(together)} GPUs, a process each, NCCL among them; SGLang opens a communicator of its own "
            "beside torch's"
        )
    elif nccl:
        notes.append(
            f"one GPU stood for {measured.rank_name}: without the {memory_bytes(nccl)} of NCCL's buffers"
        )
    return replace(
        measured,
        comparisons=(beside_measured(predict(replace(twin, gpu=gpu)), measured),),
        what_if={"predicted, cold": found.report, **found.report.what_if},
        remedies=found.report.remedies,
        notes=(*found.report.notes, *notes, *measured.notes),
    )


def _from_log(asked: MemoryOptions, log: ServerLog, out: Output) -> Answer:
    """The log's own flags say what to predict, where the command line does not."""
    given = asked.command or asked.deployment
    flags = asked.flags if given else flags_of_log(log.server_args or "", asked.flags)
    if not (asked.names_a_start or flags.model_path):
        raise UsageError(
            f"{log.path} does not say which server it is of: it has no server_args= line",
            "give the server's flags as well, --model-path first",
        )
    found = _study(asked, flags, out, _total_bytes(log))
    if asked.write_constants is not None:
        told = constants_of(found.report, log.lead)
        write_text(asked.write_constants, to_json(told.to_json()) + "\n")
    report = with_log(found.report, log)
    if missed := () if given else not_taken(log.server_args or ""):
        report = report.with_note(f"{_MISSED} {', '.join(missed)}: give its command after --")
    return Answer(report, found.sweep)


def _total_bytes(log: ServerLog) -> int | None:
    return log.oom.numbers.total_bytes or None if log.oom and log.oom.numbers else None
