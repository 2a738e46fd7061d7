"""From what was asked on the command line to one report: predicted, measured, or read from a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from runtime.server.asked import Asked
from runtime.server.errors import ConfigError
from runtime.server.gpus import Chosen
from runtime.sglang.releases import Release
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags, spelled
from sgl_tune.deployment.project_file import several
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.memory.compare import beside_log, beside_measured
from sgl_tune.memory.ghost.fit import Search
from sgl_tune.memory.ghost.ranks import ALL, DISTINCT
from sgl_tune.memory.ghost.remedies import helpful
from sgl_tune.memory.measure import SNAPSHOT_SUFFIX, file_of, measure, measure_together
from sgl_tune.memory.options import FitOptions, MemoryOptions
from sgl_tune.memory.predict import predict, predict_all
from sgl_tune.memory.report import Answer, MemoryReport, Remedy, worst
from sgl_tune.memory.run_report import read_report
from sgl_tune.memory.server_args import flags_of_log, not_taken
from sgl_tune.memory.start import Start, layout_of, starts_of
from sgl_tune.memory.table import heading
from sgl_tune.memory.target import target_gpu
from sgl_tune.memory.trial import Fit
from sgl_tune.memory.what_if import AS_IS, WhatIf, parse_sweep, parse_what_if
from sgl_tune.processes.scratch import scratch
from sgl_tune.server_log.rank_log import ServerLog
from sgl_tune.units import memory_bytes

_MISSED = "the prediction is without what the log's server was set to besides,"


@dataclass(frozen=True, slots=True)
class _Study:
    """`report` is of `start`, the rank that leads; of everything else each worst rank."""

    start: Start
    report: MemoryReport
    sweep: Mapping[str, MemoryReport]


def answer(asked: MemoryOptions, out: Output) -> Answer:
    if sum((asked.measure, asked.from_run is not None, asked.from_log is not None)) > 1:
        raise UsageError("--measure, --from and --log are three sources of one report", "give one")
    if asked.from_run is not None:
        measured = read_report(asked.from_run)
        if not asked.names_a_start:
            return Answer(measured)
        found = _study(asked, asked.flags, out, measured.total_bytes)
        return Answer(_beside_prediction(measured, found), found.sweep)
    if asked.from_log is not None:
        return _beside_log(asked, asked.from_log.log, out)
    if asked.measure and not local_gpus():
        raise UsageError("--measure needs a GPU, and there is none here", "without it the start is predicted")
    found = _study(asked, asked.flags, out)
    return _measured(asked, found, out) if asked.measure else Answer(found.report, found.sweep)


def fitted(asked: MemoryOptions, options: FitOptions, out: Output) -> tuple[Fit, Release, str]:
    """With the deployment's release, whose spelling the flags have, and a heading."""
    gpu = _gpu(asked)
    start, *_ = starts_of(_deployment(asked, asked.flags, gpu), asked.ranks)
    goals = options.goals(start.deployment.inputs.asked.context_length)
    with out.progress("fitting") as progress:
        try:
            found = Search(Starter(start, asked.ranks, progress.advance), goals).fit()
        except ConfigError as error:
            raise UsageError(error.message, error.remedy) from error
    report = _noted(found.best.report, start, gpu)
    found = replace(found, best=replace(found.best, report=report))
    return found, start.deployment.release, heading(report)


def _gpu(asked: MemoryOptions, total_bytes: int | None = None) -> Chosen:
    flags, here = asked.flags, local_gpus()
    chosen = target_gpu(None if asked.measure else flags.gpu, asked.gpu_memory, flags.arch, here)
    if total_bytes is None:
        return chosen
    return replace(chosen, gpu=replace(chosen.gpu, cuda_bytes=total_bytes))


def _deployment(asked: MemoryOptions, flags: ServerFlags, gpu: Chosen, what_if: WhatIf = AS_IS) -> Deployment:
    named = None if "gpu" in what_if.flags else gpu.gpu
    flags = replace(flags, gpu=None, arch=None)
    found = select_deployments(flags, asked.command, asked.deployment, changes=what_if.flags, gpu=named)
    if len(found) > 1:
        raise several([one.name for one in found])
    return found[0]


def _study(asked: MemoryOptions, flags: ServerFlags, out: Output, total_bytes: int | None = None) -> _Study:
    """Predict the start, each what-if and each step of the sweep."""
    gpu = _gpu(asked, total_bytes)
    what_ifs = [parse_what_if(text) for text in asked.what_if]
    sweep = parse_sweep(asked.sweep) if asked.sweep else ()
    ways = (AS_IS, *what_ifs, *sweep)
    groups = [starts_of(_deployment(asked, flags, gpu, way), asked.ranks, way) for way in ways]
    snapshot = None if asked.measure else asked.snapshot
    with out.progress("predicting", sum(map(len, groups))) as progress:
        ranks = predict_all(groups[0], progress.advance, snapshot)
        others = [worst(predict_all(starts, progress.advance)) for starts in groups[1:]]
    found = dict(zip((way.name for way in ways[1:]), others, strict=True))
    lead = worst(ranks)
    start = groups[0][ranks.index(lead)]
    start = replace(start, most_tokens=lead.sizes.kv_tokens) if start.parallel.pp > 1 else start
    report = replace(
        _noted(lead, start, gpu),
        what_if={one.name: found[one.name] for one in what_ifs},
        ranks=_all_ranks(asked.ranks, start, ranks),
        remedies=_remedies(asked, start, lead, out),
        flags=_flags_asked(start.deployment),
    )
    return _Study(start, report, {step.name: found[step.name] for step in sweep})


def _noted(report: MemoryReport, start: Start, gpu: Chosen) -> MemoryReport:
    chosen, assumed = start.deployment, gpu.assumed
    return replace(
        report,
        is_gpu_assumed=assumed is not None,
        notes=(*filter(None, [assumed]), *chosen.warnings, *chosen.notes, *start.notes),
        not_modelled=chosen.not_modelled,
    )


def _remedies(asked: MemoryOptions, start: Start, report: MemoryReport, out: Output) -> tuple[Remedy, ...]:
    if report.verdict == "fits":
        return ()
    starter = Starter(start, asked.ranks)

    def tried(changes: Mapping[str, Any]) -> tuple[MemoryReport, float]:
        try:
            found = starter(changes)
        except (ConfigError, UsageError):  # it cannot be laid out so: its heads over so many ranks
            return report, 0.0
        return found.report, found.seconds

    with out.progress("simulating what would help"):
        return helpful(report, layout_of(start.parallel), start.deployment.release, tried)[0]


def _flags_asked(deployment: Deployment) -> str:
    """What was set of the server's flags, as its release spells them."""
    asked, unset, told = deployment.inputs.asked, Asked(), []
    for name in (one.name for one in fields(asked) if one.name != "model_path"):
        value = getattr(asked, name)
        if value == getattr(unset, name) or value is False:
            continue
        text = " ".join(map(str, value)) if isinstance(value, tuple) else value
        told.append(spelled(deployment.release, name, text))
    return " ".join(told)


def _all_ranks(asked: str, start: Start, predicted: Sequence[MemoryReport]) -> tuple[MemoryReport, ...]:
    """Every rank that was asked for, with the report of the first of its stage."""
    layout = layout_of(start.parallel)
    if asked != ALL:
        return tuple(predicted) if len(predicted) > 1 else ()
    if layout.ranks == 1:
        return ()
    return tuple(
        replace(predicted[rank // layout.tp], rank=rank, rank_name=layout.name(rank))
        for rank in range(layout.ranks)
    )


def _measured(asked: MemoryOptions, found: _Study, out: Output) -> Answer:
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
            report = report.with_note(f"torch's memory snapshot of {report.rank_name}: {snapshot}")
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


def _beside_prediction(measured: MemoryReport, found: _Study, together: Sequence[Start] = ()) -> MemoryReport:
    """Compared with a prediction of what was measured, which is less than a server's start."""
    gpu = replace(found.start.gpu, cuda_bytes=measured.total_bytes)
    twin = found.start.alone()
    if together:
        twin = replace(found.start.as_measured(), rank=measured.rank)
    return replace(
        measured,
        comparisons=(beside_measured(predict(replace(twin, gpu=gpu)), measured),),
        what_if={"predicted, cold": found.report, **found.report.what_if},
        remedies=found.report.remedies,
        notes=(*found.report.notes, *_measuring(measured, found, len(together)), *measured.notes),
    )


def _measuring(measured: MemoryReport, found: _Study, together: int) -> Iterator[str]:
    yield "measured without profiling tactics, as a start does whose cache is warm"
    nccl = sum(constant.bytes for constant in found.report.constants if constant.name.startswith("nccl"))
    if together:
        yield (
            f"{together} GPUs, a process each, NCCL among them; SGLang opens a communicator of its own "
            "beside torch's"
        )
    elif nccl:
        yield f"one GPU stood for {measured.rank_name}: without the {memory_bytes(nccl)} of NCCL's buffers"


def _beside_log(asked: MemoryOptions, log: ServerLog, out: Output) -> Answer:
    """The log's own flags say what to predict, where the command line does not."""
    given = asked.command or asked.deployment
    flags = asked.flags if given else flags_of_log(log.server_args or "", asked.flags)
    if not (asked.names_a_start or flags.model_path):
        raise UsageError(
            f"{log.path} does not say which server it is of: it has no server_args= line",
            "give the server's flags as well, --model-path first",
        )
    total = log.oom.numbers.total_bytes or None if log.oom and log.oom.numbers else None
    found = _study(asked, flags, out, total)
    compared = beside_log(found.report, log)
    report = replace(found.report, comparisons=(compared,) if compared.rows else ())
    if missed := () if given else not_taken(log.server_args or ""):
        report = report.with_note(f"{_MISSED} {', '.join(missed)}: give its command after --")
    return Answer(report, found.sweep)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a start came to. `ranks` share the requests; `graphs`: the largest batch of a decode graph."""

    report: MemoryReport
    ranks: int
    graphs: int | None
    seconds: float


class Starter:
    """Predicts one deployment's starts with other flags, by SGLang's names."""

    def __init__(self, start: Start, ranks: str, done: Callable[[], None] = lambda: None) -> None:
        self._start, self._ranks, self._done = start, ranks, done

    def __call__(self, flags: Mapping[str, Any], least: int | None = None) -> Predicted:
        """ConfigError where such a server is refused. A prediction goes to its end, whatever is left."""
        began = time.process_time()
        deployment = self._start.deployment.asking(**flags)
        starts = [
            replace(one, behaviours=self._start.behaviours) for one in starts_of(deployment, self._ranks)
        ]
        report = worst(predict_all(starts, self._done))
        graphs = max(starts[0].runtime.decode_graphs, default=None)
        return Predicted(report, deployment.parallel.attn_dp, graphs, time.process_time() - began)
