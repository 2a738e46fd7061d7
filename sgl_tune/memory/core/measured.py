"""A measurement on this machine's GPUs, or the file of an earlier one, compared with the prediction."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sgl_tune.cli.out import Output
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.by_core import CoreStarter
from sgl_tune.memory.core.measure import SNAPSHOT_SUFFIX, file_of, measure
from sgl_tune.memory.core.predict import predict, read_report
from sgl_tune.memory.core.start import Start
from sgl_tune.memory.options import MemoryOptions
from sgl_tune.memory.report import Answer, MemoryReport, worst
from sgl_tune.memory.starting import ALL, AS_IS, DISTINCT
from sgl_tune.memory.study import beside_measured, study
from sgl_tune.processes.scratch import scratch
from sgl_tune.units import memory_bytes


def measured_answer(asked: MemoryOptions, out: Output) -> Answer:
    if asked.from_run is not None:
        report = read_report(asked.from_run)
        if not asked.by.names_a_start:
            return Answer(report)
        return _beside_prediction([report], (), asked, out)
    if not local_gpus():
        raise UsageError("--measure needs a GPU, and there is none here", "leave it out to predict the start")
    starts = tuple(start.as_measured() for start in CoreStarter(asked).starts(AS_IS))
    together = _all_here(asked, starts[0])
    with scratch() as private:
        file = asked.out or private.folder / "run.jsonl"
        reports = measure(together or starts[:1], file, out, asked.snapshot)
        found = _beside_prediction(reports, together, asked, out)
        rank = found.report.whose.rank if together else 0
        snapshot = asked.snapshot and file_of(asked.snapshot, rank)
        snapshot = snapshot or file_of(file, rank).with_suffix(SNAPSHOT_SUFFIX)
        if snapshot.exists() and (asked.snapshot or asked.out):
            note = f"torch's memory snapshot of {found.report.whose.rank_name}: {snapshot}"
            return replace(found, report=found.report.with_notes(warnings=[note]))
    return found


def _all_here(asked: MemoryOptions, start: Start) -> tuple[Start, ...]:
    """Return a start of every rank if this machine has a GPU for each and the user did not ask for one
    rank."""
    ranks = start.parallel.world_size
    if ranks == 1 or asked.ranks not in (DISTINCT, ALL) or ranks > len(local_gpus()):
        return ()
    return tuple(replace(start, rank=rank) for rank in range(ranks))


def _beside_prediction(
    ranks: Sequence[MemoryReport], together: Sequence[Start], asked: MemoryOptions, out: Output
) -> Answer:
    """Return the answer with the measured ranks, compared with a prediction of the measured start. The
    rank that ran out of memory leads, because its death ended the others. A measured start does less than
    a server's start; the compared prediction is of the measured one."""
    measured = next((report for report in ranks if report.oom is not None), worst(ranks))
    starter = CoreStarter(asked, measured.total_bytes)
    found = study(asked, starter, out)
    start = replace(starter.starts(AS_IS)[0], rank=measured.whose.rank)
    twin = start.as_measured() if together else start.alone()
    notes = _notes(measured, found.report, len(together), twin)
    report = replace(
        measured,
        comparisons=(beside_measured(predict(twin), measured),),
        what_if={"predicted, cold": found.report, **found.report.what_if},
        remedies=found.report.remedies,
        ranks=tuple(ranks) if together else (),
    )
    trust = found.report.trust
    return Answer(report.with_notes(*trust.notes, *notes, warnings=trust.warnings), found.sweep)


def _notes(measured: MemoryReport, predicted: MemoryReport, together: int, start: Start) -> Iterator[str]:
    yield "measured without timing tactics, as a start does whose cache is warm"
    if (used := start.runtime.kernels.moe) != start.backend:
        yield f"experts ran by {used}, which stands for {start.backend}"
    nccl = sum(constant.bytes for constant in predicted.constants if constant.name.startswith("nccl"))
    if together:
        yield (
            f"measured on {together} GPUs with a process each and NCCL among them; SGLang opens one more "
            "communicator than torch does"
        )
    elif nccl:
        yield (
            f"one GPU stood for {measured.whose.rank_name}: the {memory_bytes(nccl)} of NCCL's buffers are "
            "not included"
        )
