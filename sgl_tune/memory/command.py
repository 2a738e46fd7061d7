"""A prediction, a measurement or a fit, from what was asked to what is printed."""

from __future__ import annotations

import sys
from typing import Any

from sgl_tune.cli.format import DocumentFormat
from sgl_tune.cli.out import Output
from sgl_tune.errors import Ended, SglTuneError, UsageError
from sgl_tune.memory.fit_page import fit_json, fit_markdown, show_fit
from sgl_tune.memory.ghost.chosen import Who, answered, fit_by
from sgl_tune.memory.html import render_page
from sgl_tune.memory.markdown import report_markdown
from sgl_tune.memory.options import SCHEMA_VERSION, FitOptions, MemoryOptions, ShowOptions
from sgl_tune.memory.report import Answer, MemoryReport
from sgl_tune.memory.side_by_side import (
    show_comparison,
    show_ranks,
    show_remedies,
    show_sweep,
    show_what_ifs,
)
from sgl_tune.memory.table import heading, show_report
from sgl_tune.server_log.show import headline, outcome_markdown, show_outcome
from sgl_tune.server_log.verdict import Outcome
from sgl_tune.writing import check_place, write_text

_CODES = {"fits": 0, "refused": 2}


def report_start(out: Output, asked: MemoryOptions, goals: FitOptions, shown: ShowOptions) -> None:
    for path in filter(None, (shown.html, asked.snapshot, shown.record)):
        check_place(path)
    if goals.are_given:
        _fit_start(out, asked, goals, shown)
        return
    if asked.from_log is not None and asked.from_log.is_dead:
        _beside_death(out, asked, asked.from_log, shown)
        return
    try:
        found = _answered(out, asked, shown)
    except UsageError:
        if asked.from_log is not None and (cause := asked.from_log.cause):  # though it cannot be predicted
            out.warn(f"{asked.from_log.log.path}: {cause.line()}")
        raise
    data = {"schema_version": SCHEMA_VERSION, **found.to_json()}
    out.result(data, human=lambda: _show(out, found), quiet=_lines(found, shown))
    raise Ended(_CODES.get(found.report.verdict, 1))


def _answered(out: Output, asked: MemoryOptions, shown: ShowOptions) -> Answer:
    found = answered(asked, _who(shown), out)
    _warn_of_cage(out, found.report)
    if shown.html is not None:
        write_text(shown.html, render_page(found.to_json()))
        out.note(f"{shown.html}: one page, for a browser")
    return found


def _lines(found: Answer, shown: ShowOptions) -> list[str]:
    if shown.format is DocumentFormat.markdown:
        return [*report_markdown(found.report, found.sweep)]
    return [f"{found.report.verdict}{' inside the error bar' if found.report.is_inside_bar else ''}"]


def _beside_death(out: Output, asked: MemoryOptions, dead: Outcome, shown: ShowOptions) -> None:
    """The log's verdict comes first, and holds where its server cannot be predicted."""
    is_markdown = shown.format is DocumentFormat.markdown
    show_outcome(out, dead)
    found, why = None, ""
    try:
        found = _answered(out, asked, shown)
    except SglTuneError as error:
        why = error.message
        out.warn(f"no prediction beside the log: {why}")
        if error.remedy:
            out.hint(error.remedy)
    lines = [*outcome_markdown(dead)] if is_markdown else [headline(dead)]
    if found is not None and is_markdown:
        lines += ["", *_lines(found, shown)]
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        **dead.to_json(),
        "predicted": found.to_json() if found else None,
        "not_predicted": why or None,
    }
    out.result(data, human=lambda: _show(out, found) if found else None, quiet=lines)
    raise Ended(1)


def _who(shown: ShowOptions) -> Who:
    return Who(shown.server, shown.core, shown.trust_remote_code, shown.record)


def _fit_start(out: Output, asked: MemoryOptions, goals: FitOptions, shown: ShowOptions) -> None:
    if shown.html is not None:
        raise UsageError("--html shows one start, --fit looks for one", "give it the flags that --fit prints")
    found, release, title = fit_by(asked, _who(shown), goals, out)
    _warn_of_cage(out, found.best.report)
    lines = [found.best.line(release)]
    if shown.format is DocumentFormat.markdown:
        lines = [*fit_markdown(found, release, title)]
    data = {"schema_version": SCHEMA_VERSION, **fit_json(found, release, title)}
    out.result(data, human=lambda: show_fit(out, found, release, title), quiet=lines)


def _warn_of_cage(out: Output, report: MemoryReport) -> None:
    if report.cage_lacks:
        out.warn(f"the cage around the server's start lacks: {'; '.join(report.cage_lacks)}")


def _show(out: Output, found: Answer) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    out.line(heading(found.report), style="bold")
    for note in found.report.notes:
        out.line(f"- {note}", style="dim", indent=2)
    show_report(out, found.report, encoding)
    out.line()
    show_remedies(out, found.report)
    show_what_ifs(out, found.report)
    show_ranks(out, found.report.ranks)
    if found.sweep:
        show_sweep(out, found.sweep, unicode="utf" in encoding.lower())
    for comparison in found.report.comparisons:
        show_comparison(out, comparison)
