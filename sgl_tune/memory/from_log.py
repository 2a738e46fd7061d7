"""A prediction with what a server's log adds to it: the cause, what is missing, and each rank's own gap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sgl_tune.memory.compare import beside_log
from sgl_tune.memory.log_gap import gap
from sgl_tune.memory.logged import Logged, LoggedRank
from sgl_tune.memory.report import Comparison, MemoryReport
from sgl_tune.server_log.cause import cause_of, missing_of
from sgl_tune.server_log.rank_log import RankLog, ServerLog
from sgl_tune.units import memory_bytes

_UNEVEN = 128 << 20


def with_log(report: MemoryReport, log: ServerLog) -> MemoryReport:
    notes = tuple(_notes(report, log))
    compared = _comparison(report, log)
    return replace(
        report,
        comparisons=(*report.comparisons, compared) if compared.rows else report.comparisons,
        notes=(*report.notes, *notes),
        logged=logged(report, log),
    )


def logged(report: MemoryReport, log: ServerLog) -> Logged:
    ranks = tuple(_rank(report, log, rank) for rank in log.ranks)
    return Logged(cause_of(log), missing_of(log), ranks)


def _rank(report: MemoryReport, log: ServerLog, rank: RankLog) -> LoggedRank:
    parted = None if rank.source in log.others else gap(report, rank)
    return LoggedRank(
        source=rank.source,
        rank=rank.rank,
        ends_in=rank.phase_now,
        baseline_bytes=rank.baseline_bytes,
        pool_free_bytes=rank.free_after("kv pool"),
        least_free_bytes=rank.least_free_bytes,
        gap=parted.causes if parted else None,
    )


def _comparison(report: MemoryReport, log: ServerLog) -> Comparison:
    """A log of a death is compared with the first of the predicted starts that dies."""
    starts = {"": report, **report.what_if}
    name = next((name for name, start in starts.items() if log.oom and start.oom), "")
    comparison = beside_log(starts[name], log)
    return replace(comparison, title=f"Predicted, {name}, and logged") if name else comparison


def _notes(report: MemoryReport, log: ServerLog) -> Iterator[str]:
    lead = log.lead
    if parted := gap(report, lead):
        yield parted.line()
    if lead.pool_comes_last:
        yield "the KV pool was sized after the captures, SGLANG_ENABLE_POST_CAPTURE_KV_SIZING: not modelled"
    yield from _imbalance(log)
    for source in log.others:
        yield f"{source or 'a part of the log'} is of another server: its flags differ, it is not compared"
    for what in missing_of(log):
        yield f"the log has {what}"
    yield _ending(log)


def _ending(log: ServerLog) -> str:
    oom, lead = log.oom, log.lead
    if oom is not None:
        where = f" at {oom.where}" if oom.where else ""
        phase = "serving" if oom.phase == "ready" else oom.phase
        return f"in the log, {lead.name} ran out of memory in {phase}{where}"
    if log.refusal:
        return f"in the log, SGLang itself ended the start of {lead.name}: {log.refusal.splitlines()[0]}"
    return f"the log of {lead.name} ends after {lead.phase_now}, without running out of memory"


def _imbalance(log: ServerLog) -> Iterator[str]:
    """The pool of all ranks of a server is sized for the one with the least."""
    for peers in _servers(log):
        told = {rank.name: rank.baseline_bytes for rank in peers if rank.baseline_bytes is not None}
        if len(told) < 2:
            continue
        least, most = min(told, key=told.__getitem__), max(told, key=told.__getitem__)
        apart = told[most] - told[least]
        if apart > _UNEVEN:
            yield (
                f"of {len(told)} ranks {least} had the least free before the weights, "
                f"{memory_bytes(told[least])}, {memory_bytes(apart)} less than {most}: the pool of each is "
                "sized for it"
            )


def _servers(log: ServerLog) -> list[list[RankLog]]:
    """Pods whose ranks have names of their own are one server; where names come again, each pod is one."""
    peers = [rank for rank in log.ranks if rank.source not in log.others]
    if len({rank.rank for rank in peers}) == len(peers):
        return [peers]
    sources = dict.fromkeys(rank.source for rank in peers)
    return [[rank for rank in peers if rank.source == source] for source in sources]
