"""Print a report as Markdown, for an issue or a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from sgl_tune.memory.report import Answer
from sgl_tune.memory.views import tables
from sgl_tune.memory.views.words import failure_text, heading, remedy_text, verdict_line


def report_markdown(found: Answer) -> Iterator[str]:
    report = found.report
    yield from (f"### {heading(report)}", "", f"**{verdict_line(report)}**")
    if report.failure is not None:
        yield from ("", f"> {failure_text(report)}")
    if report.stack:
        yield from ("", "```", *reversed(report.stack), "```")
    for number, remedy in enumerate(report.remedies):
        yield from ("", f"{number + 1}. {remedy_text(report, number)}", "", f"       {remedy.command}")
    for table in (tables.phases(report), tables.held(report), *tables.beside(found)):
        yield from _table(table)
    yield from ("", *(f"- {note}" for note in (*report.trust.warnings, *report.trust.notes)))


def _table(table: tables.Table) -> Iterator[str]:
    if not table.rows:
        return
    marks = table.marks or ("",) * len(table.rows)
    yield from ("", f"**{table.title}**", "")
    yield f"| {' | '.join(column.title.lower() for column in table.columns)} |"
    yield "|" + "".join("---:|" if column.right else "---|" for column in table.columns)
    for row, mark in zip(table.rows, marks, strict=True):
        name, *cells = [cell.replace("|", "/") for cell in row]
        yield f"| {' | '.join([f'**{name}**' if mark else name, *cells])} |"
    if table.below:
        yield from ("", table.below)
