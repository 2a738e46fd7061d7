"""Run mem-report: make a prediction, a measurement or a fit, and print it."""

from __future__ import annotations

import sys
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.errors import Ended, SglTuneError, UsageError
from sgl_tune.memory.answer import answer
from sgl_tune.memory.options import FitOptions, MemoryOptions, ShowOptions
from sgl_tune.memory.report import Answer, MemoryReport
from sgl_tune.memory.study import fitted
from sgl_tune.memory.views.fit_page import fit_json, show_fit
from sgl_tune.memory.views.html import render_page
from sgl_tune.memory.views.terminal import show_answer
from sgl_tune.server_log.show import show_outcome
from sgl_tune.server_log.verdict import Outcome
from sgl_tune.writing import check_place, write_text

_CODES = {"fits": 0, "refused": 2}


def report_start(out: Output, asked: MemoryOptions, goals: FitOptions, shown: ShowOptions) -> None:
    for path in filter(None, (shown.html, asked.snapshot, shown.record)):
        check_place(path)
    if goals.are_given:
        _fit_start(out, asked, goals, shown)
        return
    if asked.from_log is not None and asked.from_log.log.death:
        _beside_death(out, asked, asked.from_log, shown)
        return
    try:
        found = _answered(out, asked, shown)
    except UsageError:
        if asked.from_log is not None and (cause := asked.from_log.cause):  # also without a prediction
            out.warn(f"{asked.from_log.log.path}: {cause.what}: {cause.shown_by}")
        raise
    out.result(found.to_json(), human=lambda: _show(out, found, shown), quiet=_lines(found))
    raise Ended(_CODES.get(found.report.verdict, 1))


def _answered(out: Output, asked: MemoryOptions, shown: ShowOptions) -> Answer:
    found = answer(asked, shown, out)
    _warn_of_cage(out, found.report)
    if shown.html is not None:
        write_text(shown.html, render_page(found))
        out.note(f"wrote {shown.html}, a page for a browser")
    return found


def _lines(found: Answer) -> list[str]:
    return [f"{found.report.verdict}{' inside the error bar' if found.report.is_inside_bar else ''}"]


def _beside_death(out: Output, asked: MemoryOptions, dead: Outcome, shown: ShowOptions) -> None:
    """Print the log's verdict, then the prediction; if that fails, the verdict stands alone."""
    show_outcome(out, dead)
    found, why = None, ""
    try:
        found = _answered(out, asked, shown)
    except SglTuneError as error:
        why = error.message
        page = f", and no {shown.html}" if shown.html else ""
        out.warn(f"no prediction beside the log{page}: {why}")
        if error.remedy:
            out.hint(error.remedy)
    data: dict[str, Any] = {
        **dead.to_json(),
        "predicted": found.to_json() if found else None,
        "not_predicted": why or None,
    }
    out.result(data, human=lambda: _show(out, found, shown) if found else None, quiet=[dead.headline])
    raise Ended(1)


def _fit_start(out: Output, asked: MemoryOptions, goals: FitOptions, shown: ShowOptions) -> None:
    if shown.html is not None:
        raise UsageError("--html shows one start, --fit looks for one", "give it the flags that --fit prints")
    found, starter = fitted(asked, goals, shown, out)
    _warn_of_cage(out, found.best.report)
    release, command = starter.release, starter.command(found.best.change(starter.release))
    data, lines = fit_json(found, release, command), [found.best.change(release).line]
    out.result(data, human=lambda: show_fit(out, found, command, shown.verbose), quiet=lines)


def _warn_of_cage(out: Output, report: MemoryReport) -> None:
    if report.trust.cage_lacks:
        out.warn(f"the cage around the server's start lacks: {'; '.join(report.trust.cage_lacks)}")


def _show(out: Output, found: Answer, shown: ShowOptions) -> None:
    show_answer(out, found, shown.verbose, "utf" in (sys.stdout.encoding or "utf-8").lower())
