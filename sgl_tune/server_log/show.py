"""Print the verdict on a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple
from textwrap import shorten

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.server_log.verdict import Outcome, placed
from sgl_tune.units import memory_bytes

_MOST_RANKS, _MOST_LETTERS = 16, 200
_STYLES = {"ready": "green", "unfinished": "yellow"}


def show_outcome(out: Output, found: Outcome) -> None:
    out.line(found.headline, style=_STYLES.get(found.verdict, "red"))
    for title, lines in _parts(found):
        if title:
            out.line()
            out.line(title, style="bold")
        for line in lines:
            out.line(line, indent=2)
    out.line()
    if not found.log.death:
        _show_phases(out, found.log.lead)
    if len(found.log.ranks) > 1:
        _show_ranks(out, found)
    if not found.log.death and found.log.lead.steps:
        out.line("sgl-tune start-report shows where the seconds went", style="dim")
    for note in found.notes:
        out.line(f"- {note}", style="dim", indent=2)


def _parts(found: Outcome) -> Iterator[tuple[str, list[str]]]:
    """Yield titles with their lines, in the order in which a reader needs them."""
    yield "", [*evidence(found)]
    if found.cause is not None and found.verdict != "failed":
        yield f"Why: {found.cause.what}", [found.cause.shown_by] if found.cause.shown_by else []
    if found.remedies:
        title = "What would have helped, cheapest first" if found.log.ended_by_memory else "What to do"
        yield title, [f"{number}. {remedy.line()}" for number, remedy in enumerate(found.remedies, 1)]
    if others := [one.line(times) for one, times in found.log.findings.items() if one.kind != "NCCL"]:
        yield "Also in this log", others


def evidence(found: Outcome) -> Iterator[str]:
    death = found.log.death
    numbers = death.numbers if death else None
    if numbers is not None and numbers.shows_free:
        tried, free, total, allocated = map(memory_bytes, astuple(numbers)[:4])
        of, by_torch = f" of {total}" if numbers.total_bytes else "", f", {allocated} allocated by torch"
        yield f"tried {tried}, {free} free{of}{by_torch if numbers.allocated_bytes else ''}"
    if death is not None:
        yield from ([f"at {death.where}"] if death.where else [])
        text = f": {shorten(death.text, _MOST_LETTERS, placeholder=' ...')}"
        yield f"line {death.line:,} of the log{'' if numbers and numbers.shows_free else text}"
    told = (one.text for one in found.log.findings if one.kind == "NCCL")
    yield from (text for text in told if death is None or death.text not in text)
    if found.model:
        yield f"model: {found.model}"


def _show_phases(out: Output, rank: RankLog) -> None:
    """Print what each phase took, by SGLang's own lines."""
    steps = []
    for step in rank.steps:
        took = "-" if step.seconds is None else f"{step.seconds:.1f} s"
        steps.append((step.phase, took, _amount(step.used_bytes), _amount(step.free_bytes)))
    _table(out, ("PHASE", "TOOK", "USED", "FREE AFTER"), steps, 1)


def _show_ranks(out: Output, found: Outcome) -> None:
    ranks, names = found.log.ranks, ("RANK", "LAST PHASE", "FREE BEFORE", "AFTER POOL", "LEAST")
    rows = []
    for rank in ranks[:_MOST_RANKS]:
        free = (rank.baseline_bytes, rank.free_after("kv pool"), rank.least_free_bytes)
        rows.append((rank.name, rank.last_phase, *map(_amount, free)))
    if {row[1:] for row in rows} == {(ranks[0].last_phase, "-", "-", "-")}:
        return out.line(f"all {len(ranks):,} ranks end {placed(ranks[0].last_phase)}")
    _table(out, names, rows, 2)
    if len(ranks) > _MOST_RANKS:
        out.line(f"and {len(ranks) - _MOST_RANKS:,} more ranks (--format json)", style="dim")
    out.line()


def _table(out: Output, names: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> None:
    """Print the columns that hold anything. The first `texts` of them hold words."""
    held = [i for i in range(len(names)) if i < texts or any(row[i] != "-" for row in rows)]
    columns = [Column(names[i], right=i >= texts, path=names[i] == "RANK") for i in held]
    if rows:
        out.table(columns, [[row[i] for i in held] for row in rows])


def _amount(of: int | None) -> str:
    return "-" if of is None else memory_bytes(of)
