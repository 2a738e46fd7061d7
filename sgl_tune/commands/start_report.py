"""`sgl-tune start-report`: where the seconds of a server's start went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sgl_tune.cli.format import DocumentFormat, DocumentFormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.start_report.markdown import report_lines
from sgl_tune.start_report.page import show_report
from sgl_tune.start_report.read import parse_ready, read_start
from sgl_tune.start_report.report import StartReport
from sgl_tune.units import parse_age


def start_report(
    log: Annotated[
        Path,
        typer.Argument(
            help="A server's own output: a file, .gz too, or - for standard input.", metavar="LOG"
        ),
    ],
    ready: Annotated[
        str | None,
        typer.Option(
            "--ready",
            metavar="REGEX",
            help="The line that says it is ready, where it is another.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            "--start",
            metavar="N",
            help="Which start, where the log holds several; the last.",
            show_default=False,
        ),
    ] = None,
    most: Annotated[
        str | None,
        typer.Option(
            "--max",
            metavar="60s",
            help="Exit 1 where the start took longer, or did not end.",
            show_default=False,
        ),
    ] = None,
    format: DocumentFormatOption = DocumentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Say where the seconds of a server's start went, what of it was built anew, and what would spare it.

    Any log of SGLang since 0.5.12, of one rank or many. What a log does not tell is said to be not told.

    Example: sgl-tune start-report server.log

    Example: kubectl logs POD --timestamps | sgl-tune start-report - --max 90s
    """
    out = Output(sink(format, quiet))
    limit = parse_age(most) if most is not None else None
    with out.progress("read") as progress:
        report = read_start(log, parse_ready(ready), start, progress.advance)
    lines: Iterator[str] = iter([f"{report.wall_seconds:.3f}"])
    if format is DocumentFormat.markdown:
        lines = report_lines(report)
    out.result(report.to_json(), human=lambda: show_report(out, report), quiet=lines)
    raise typer.Exit(_code(out, report, limit))


def _code(out: Output, report: StartReport, limit: float | None) -> int:
    """Not ready is bad in itself: a log that ends before is one of a start that failed, or still goes on."""
    if limit is not None and report.ready and report.wall_seconds > limit:
        out.warn(f"the start took {report.wall_seconds:.1f} s, more than {limit:.0f} s")
        return 1
    return 0 if report.ready else 1
