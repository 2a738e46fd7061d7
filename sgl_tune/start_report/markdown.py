"""A start's report for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sgl_tune.start_report.against import Against
from sgl_tune.start_report.against import headline as against_headline
from sgl_tune.start_report.report import StartReport
from sgl_tune.start_report.table import (
    against_cells,
    cache_lines,
    headline,
    hit_text,
    notes,
    saves_text,
    unexplained_text,
)


def report_lines(report: StartReport) -> Iterator[str]:
    yield f"### {headline(report)}"
    yield ""
    yield from _table(
        ("phase", "took", "store", "hit", "saves", "cause"),
        (
            (p.name, f"{p.seconds:.1f} s", p.store or "-", hit_text(p), saves_text(p), p.cause)
            for p in report.phases
        ),
    )
    yield f"- unexplained: {unexplained_text(report)}"
    for phase in report.phases:
        if phase.remedy and phase.hit is not True:
            yield f"- {phase.name}: {phase.remedy}"
    yield from (f"- {text}" for text in cache_lines(report))
    yield from (f"- {note}" for note in notes(report))
    for word in report.last_words[:16]:
        silent = report.wall_seconds - word.at
        yield f"- {word.rank or 'server'} last spoke {silent:.1f} s before the end: `{word.text}`"


def against_lines(found: Against) -> Iterator[str]:
    yield f"### {against_headline(found)}"
    yield ""
    changed = (against_cells(change) for change in found.changes if change.before or change.after)
    yield from _table(("phase", "was", "is", "difference"), changed)


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(titles)
    yield _row(head)
    yield "|---" * len(head) + "|"
    yield from (_row(row) for row in rows)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
