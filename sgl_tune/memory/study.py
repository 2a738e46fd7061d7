"""Answer one question about memory: the start as it is, and all that was asked beside it. A prediction is
compared with what happened: a measured run, or a server's own log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from runtime.server.errors import ConfigError
from sgl_tune.asking.question import argv_of, value_of
from sgl_tune.cli.format import Format
from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.memory.by_server import server_starter
from sgl_tune.memory.core.by_core import CoreStarter
from sgl_tune.memory.fit import Fit, Search
from sgl_tune.memory.options import FitOptions, MemoryOptions, check_alone
from sgl_tune.memory.remedies import MOST_SECONDS, helpful
from sgl_tune.memory.report import Answer, Comparison, MemoryReport, Row
from sgl_tune.memory.starting import AS_IS, Started, Starter, first_rank, parse_change, parse_sweep
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.writing import write_text

SLOW = "simulating the start, which takes some seconds"


def fitted(asked: MemoryOptions, goals: FitOptions, out: Output) -> tuple[Fit, Starter]:
    """Return the largest start that fits, and what started it."""
    check_alone(asked)
    asked = replace(asked, by=asked.by.one())
    with starter_of(asked, out) as starter:
        try:
            argv, _ = argv_of(asked.by.flags, asked.by.command, starter.release)
            context = value_of(argv, ("--context-length",)) or ""
            wanted = goals.goals(int(context) if context.isdecimal() else None)
            out.note(SLOW)
            return Search(starter.start, starter.release, wanted).fit(), starter
        except ConfigError as error:
            raise UsageError(error.message, error.remedy) from error


@contextmanager
def starter_of(asked: MemoryOptions, out: Output, total_bytes: int | None = None) -> Iterator[Starter]:
    """Yield a starter of the user's own server if there is one, else of the core."""
    only = {"--measure": asked.measure, "--log": asked.from_run, "-f": asked.by.deployment}
    only_core = next((name for name, value in only.items() if value), None)
    server = replace(asked.by, only_core=only_core).found()
    if server is not None:
        with server_starter(asked, server, total_bytes, out) as starter:
            yield starter
        return
    of_server = {"--taken": asked.taken, "--snapshot": asked.snapshot and not asked.measure}
    for name in (name for name, value in of_server.items() if value):
        raise UsageError(f"{name} needs a server that is started", "name the server: --server PATH")
    with out.progress("simulating starts") as progress:
        yield CoreStarter(asked, total_bytes, progress.advance)


def study(asked: MemoryOptions, starter: Starter, out: Output, record: Path | None = None) -> Answer:
    """Return the start, each what-if, each step of the sweep, and the remedies."""
    first_rank(asked.ranks)  # refuses what is no rank
    what_ifs = [parse_change(text) for text in asked.what_if]
    sweep = parse_sweep(asked.sweep) if asked.sweep else ()
    for change in (AS_IS, *what_ifs, *sweep):
        starter.check(change)
    out.note(SLOW)
    first = starter.start(AS_IS)
    if record is not None and first.record is not None:
        write_text(record, first.record.to_json())
    others = {one.name: starter.start(one).report for one in (*what_ifs, *sweep)}
    remedies, untried = ((), ()) if out.format is Format.quiet else helpful(first, starter)
    report = replace(
        first.report,
        what_if={one.name: others[one.name] for one in what_ifs},
        ranks=first.reports if len(first.reports) > 1 else (),
        remedies=remedies,
    )
    warnings = [f"not tried, because {MOST_SECONDS:g} s of CPU had passed: {flags}" for flags in untried]
    report = report.with_notes(*_ranks_note(first, asked.ranks), warnings=warnings)
    return Answer(report, {one.name: others[one.name] for one in sweep})


def _ranks_note(first: Started, asked: str) -> Sequence[str]:
    total, names = first.layout.ranks, [report.whose.rank_name for report in first.reports]
    if len(names) == total:
        return ()
    alike = "" if asked.isdecimal() else "; the other ranks of a pipeline stage hold as much as the first"
    return (f"started {', '.join(names)} of {total} ranks{alike}",)


def beside_measured(predicted: MemoryReport, measured: MemoryReport) -> Comparison:
    return Comparison("Predicted and measured", "measured", tuple(_measured_rows(predicted, measured)))


def _measured_rows(predicted: MemoryReport, measured: MemoryReport) -> Iterator[Row]:
    for phase in measured.run.phases:
        twin = predicted.phase(phase.name)
        if twin is not None:
            yield Row(f"{phase.name}: torch's peak", twin.peak_bytes, phase.peak_bytes)
            yield Row(f"{phase.name}: reserved at most", twin.reserved_peak_bytes, phase.reserved_peak_bytes)
            yield Row(f"{phase.name}: outside torch", twin.non_torch_bytes, phase.non_torch_bytes)
    for what in ("kv_tokens", "max_running_requests"):
        values = getattr(predicted.sizes, what), getattr(measured.sizes, what)
        if None not in values:
            yield Row(what.replace("_", " "), *values, in_bytes=False)
    if predicted.oom and measured.oom:
        yield Row("tried to allocate", predicted.oom.tried_bytes, measured.oom.tried_bytes)


def beside_log(predicted: MemoryReport, log: ServerLog) -> Comparison:
    lead = log.lead
    who = f"log of {lead.name}" if lead.rank or lead.source else "log"
    rows = (*_logged_rows(predicted, lead), *_failure_rows(predicted, log))
    return Comparison("Predicted and logged", who, rows)


def _logged_rows(predicted: MemoryReport, log: RankLog) -> Iterator[Row]:
    before = predicted.phase("communicator")
    if before is not None and log.baseline_bytes is not None:
        yield Row("free before weights", predicted.free_after(before), log.baseline_bytes)
    for step in log.steps:
        twin = predicted.phase(step.phase)
        if twin is not None and step.free_bytes is not None:
            yield Row(f"free after {step.phase}", predicted.free_after(twin), step.free_bytes)
        if twin is not None and step.used_bytes is not None and step.phase != "kv pool":
            used = twin.non_torch_bytes if step.phase == "communicator" else twin.persistent_bytes
            yield Row(f"taken by {step.phase}", used, step.used_bytes)
    sizes, requests = predicted.sizes, log.sizes.get("max_running_requests")
    if sizes.kv_tokens and sizes.kv_bytes_per_token and log.kv_bytes:
        yield Row("KV cache", sizes.kv_tokens * sizes.kv_bytes_per_token, log.kv_bytes)
    for what, logged in (("kv_tokens", log.kv_tokens), ("max_running_requests", requests)):
        value = getattr(sizes, what)
        if value is not None and logged is not None:
            yield Row(what.replace("_", " "), value, logged, in_bytes=False)


def _failure_rows(predicted: MemoryReport, log: ServerLog) -> Iterator[Row]:
    numbers = log.oom.numbers if log.oom else None
    if numbers and predicted.oom:
        yield Row("tried to allocate", predicted.oom.tried_bytes, numbers.tried_bytes)
        yield Row("free at the failure", predicted.oom.free_bytes, numbers.free_bytes)
        yield Row("allocated at the failure", predicted.oom.allocated_bytes, numbers.allocated_bytes)
