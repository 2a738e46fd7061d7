"""`sgl-tune start-report`: show where the seconds of a server's start went."""

import sys
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO

from sgl_tune.cli.format import DocumentFormat, DocumentFormatOption, QuietOption
from sgl_tune.cli.out import Output
from sgl_tune.cli.pages import SCHEMA_VERSIONS
from sgl_tune.cli.parameters import Argument, Option
from sgl_tune.errors import Ended, UsageError
from sgl_tune.markdown import output_of
from sgl_tune.start_report.report import StartReport, parse_ready, read_start
from sgl_tune.start_report.running import run_server
from sgl_tune.start_report.table import Against, render_page, show_against, show_report
from sgl_tune.units import parse_age
from sgl_tune.writing import check_place, write_text


def _option(*names: str, help: str, metavar: str) -> Any:
    return Option(*names, help=help, metavar=metavar)


def start_report(
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="LOG | -- COMMAND",
            help="A server's log: a file, a .gz, or - for standard input. After --: the command that starts"
            " the server.",
        ),
    ] = None,
    ready: Annotated[
        str | None, _option("--ready", metavar="REGEX", help="A log line that says the server is ready.")
    ] = None,
    start: Annotated[
        int | None, _option("--start", metavar="N", help="Which start in the log. Default: the last.")
    ] = None,
    most: Annotated[
        str | None, _option("--max", metavar="60s", help="Exit with 1 if the start took longer.")
    ] = None,
    against: Annotated[
        Path | None, _option("--against", metavar="LOG", help="Compare with an earlier start.")
    ] = None,
    html: Annotated[Path | None, _option("--html", metavar="FILE", help="An HTML page to write.")] = None,
    stop_when_ready: Annotated[
        bool, Option("--stop-when-ready", help="With a COMMAND: stop the server when it is ready.")
    ] = False,
    out_file: Annotated[
        Path | None, _option("-o", "--out", metavar="FILE", help="With a COMMAND: write the report here.")
    ] = None,
    format: DocumentFormatOption = DocumentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Show where the seconds of a server's start went, what was built anew, and what would save time.

    It reads any log of SGLang since 0.4, of one rank or many. Anything the log does not show is marked
    unknown. With a command after --, the server is started here: its output and signals pass through, and
    compilers and files are watched too.

    Example: sgl-tune start-report server.log

    Example: kubectl logs POD --timestamps | sgl-tune start-report - --max 90s

    Example: sgl-tune start-report --stop-when-ready -- python -m sglang.launch_server --model-path M
    """
    limit = parse_age(most, "--max") if most is not None else None
    for path in filter(None, (html, out_file)):
        check_place(path)
    before = read_start(against, parse_ready(ready), None, lambda count: None) if against else None
    shown = _Shown(format, quiet, limit, before, html, Path(words[0]).name if words else "")
    if "--" in sys.argv:
        _run(words or [], shown, ready, start, stop_when_ready, out_file)
    if stop_when_ready or out_file is not None:
        raise UsageError(
            "--stop-when-ready and --out are for a command after --", "redirect the output instead"
        )
    if not words or len(words) > 1:
        given = f"{len(words)} logs are given" if words else "no log is given"
        raise UsageError(given, "give one file, - for standard input, or a command after --")
    out = shown.output()
    with out.progress("bytes read") as progress:
        report = read_start(Path(words[0]), parse_ready(ready), start, progress.advance)
    shown.show(out, report)
    raise Ended(shown.code(out, report))


class _Shown(NamedTuple):
    """How a report is printed, and what decides the exit code."""

    format: DocumentFormat
    quiet: bool
    limit: float | None
    before: StartReport | None
    html: Path | None
    title: str

    def output(self, stdout: TextIO | None = None) -> Output:
        return output_of(self.format, self.quiet, SCHEMA_VERSIONS["start-report"], stdout)

    def show(self, out: Output, report: StartReport) -> None:
        found = Against(self.before, report) if self.before else None
        if self.html is not None:
            write_text(self.html, render_page(report, found, self.title))
            out.note(f"{self.html}: one page, for a browser")
        is_known = report.ready and report.start.is_timed
        lines = [f"{report.wall_seconds:.3f}" if is_known else report.outcome.headline]
        data = {**report.to_json(), "against": found.to_json() if found else None}
        out.result(data, human=lambda: _human(out, report, found), quiet=lines)

    def code(self, out: Output, report: StartReport) -> int:
        """Return 1 for a start that was not ready (it failed or still runs) or took longer than the limit."""
        if self.limit is not None and report.ready and report.wall_seconds > self.limit:
            out.warn(f"the start took {report.wall_seconds:.1f} s, more than {self.limit:.0f} s")
            return 1
        return 0 if report.ready and report.start.is_timed else 1


def _human(out: Output, report: StartReport, found: Against | None) -> None:
    show_report(out, report)
    if found:
        show_against(out, found)


def _run(
    words: list[str], shown: _Shown, ready: str | None, start: int | None, stop: bool, out_file: Path | None
) -> None:
    """Start the server. It keeps stdout and stderr, so the report goes to stderr or to `out_file`."""
    if start is not None:
        raise UsageError(
            "--start chooses from a log, and a command after -- is one start", "leave --start out"
        )
    talk = shown.output(sys.stderr)

    def tell(report: StartReport) -> None:
        if out_file is None:
            shown.show(talk, report)
            return
        page = StringIO()
        shown.show(shown.output(page), report)
        write_text(out_file, page.getvalue())

    ended, report = run_server(words, parse_ready(ready), stop, tell)
    code = shown.code(talk, report)
    raise Ended(code if stop and report.ready else ended or code)
