"""The verdict about a log, for a terminal, for an issue, and in one line."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.server_log.verdict import Outcome, last_phase
from sgl_tune.units import memory_bytes

_MOST_RANKS = 16


def headline(found: Outcome) -> str:
    rank = found.log.lead.name
    who = f" on {rank}" if found.names_rank and rank != "the server" else ""
    if found.verdict == "oom":
        return f"OUT OF MEMORY {found.place}{who}{_short_by(found)}"
    if found.verdict == "refused":
        return f"REFUSED by SGLang {found.place}{who}"
    if found.verdict == "failed":
        return f"DIED {found.place}{who}: {found.cause.what if found.cause else found.kind}"
    if found.verdict == "ready":
        return "READY: the log shows a server that started, and no death"
    phase = last_phase(found.log.lead)
    end = phase if phase.startswith("after the") else f"in {phase}"
    if phase == "setup":
        end = "before the communicator"
    return f"UNFINISHED: the log shows no death and no ready server; it ends {end}"


def show_outcome(out: Output, found: Outcome) -> None:
    if found.model:
        out.line(found.model, style="dim")
    style = {"ready": "green", "unfinished": "yellow"}.get(found.verdict, "red")
    out.line(headline(found), style=style)
    for line in _evidence(found):
        out.line(line, indent=2)
    if found.cause is not None and found.verdict != "failed":
        out.line()
        out.line(f"Why: {found.cause.what}", style="bold")
        out.line(found.cause.shown_by, indent=2)
    if found.remedies:
        out.line()
        out.line(_remedies_title(found), style="bold")
        for number, remedy in enumerate(found.remedies, 1):
            out.line(f"{number}. {remedy.line()}", indent=2)
    out.line()
    _show_ranks(out, found)
    for note in found.notes:
        out.line(f"- {note}", style="dim", indent=2)


def outcome_markdown(found: Outcome) -> Iterator[str]:
    yield f"### {headline(found)}"
    yield ""
    yield from (f"- {line}" for line in _evidence(found))
    if found.cause is not None and found.verdict != "failed":
        yield from ("", f"**{found.cause.what}**: {found.cause.shown_by}")
    if found.remedies:
        yield from ("", f"{_remedies_title(found)}:", "")
        yield from (f"{number}. {remedy.line()}" for number, remedy in enumerate(found.remedies, 1))
    yield from (("", *(f"- {note}" for note in found.notes)) if found.notes else ())


def _remedies_title(found: Outcome) -> str:
    if found.verdict == "failed":
        return "What to do"
    return "What would have helped, cheapest first" if found.is_dead else "What would help"


def _short_by(found: Outcome) -> str:
    numbers = found.log.oom.numbers if found.log.oom else None
    if numbers is None:
        return ": the log does not show how much was short"
    if not numbers.total_bytes:
        return f": {memory_bytes(numbers.tried_bytes)} did not fit"
    if numbers.tried_bytes <= numbers.free_bytes:
        tried, free = map(memory_bytes, (numbers.tried_bytes, numbers.free_bytes))
        return f": {tried} did not fit, though {free} were free"
    return f": {memory_bytes(numbers.tried_bytes - numbers.free_bytes)} short"


def _evidence(found: Outcome) -> Iterator[str]:
    oom = found.log.oom
    if oom is not None and oom.numbers is not None and oom.numbers.total_bytes:
        numbers = oom.numbers
        allocated = numbers.allocated_bytes
        by_torch = f", {memory_bytes(allocated)} allocated by torch" if allocated else ""
        tried, free, total = map(memory_bytes, (numbers.tried_bytes, numbers.free_bytes, numbers.total_bytes))
        yield f"tried {tried}, {free} free of {total}{by_torch}"
    if oom is not None and oom.where:
        yield f"at {oom.where}"
    if found.failure:
        yield f"line {found.line}: {found.failure.splitlines()[0][:300]}"


def _show_ranks(out: Output, found: Outcome) -> None:
    ranks = found.log.ranks
    if len(ranks) < 2:
        return
    columns = (
        Column("RANK", path=True),
        Column("LAST PHASE", path=True),
        Column("FREE BEFORE", right=True),
        Column("AFTER POOL", right=True),
        Column("LEAST", right=True),
    )
    out.table(columns, [_cells(rank) for rank in ranks[:_MOST_RANKS]])
    if len(ranks) > _MOST_RANKS:
        out.line(f"and {len(ranks) - _MOST_RANKS:,} more ranks (--format json)", style="dim")
    out.line()


def _cells(rank: RankLog) -> tuple[str, ...]:
    amounts = (rank.baseline_bytes, rank.free_after("kv pool"), rank.least_free_bytes)
    return (rank.name, last_phase(rank), *("-" if of is None else memory_bytes(of) for of in amounts))
