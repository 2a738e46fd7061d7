"""`sgl-tune mem-report`: which startup phase takes the memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cli.format import DocumentFormat, DocumentFormatOption, QuietOption, sink
from sgl_tune.cli.out import Output
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.options import ServerCommand, ServerFlags
from sgl_tune.deployment.project_option import DeploymentOption
from sgl_tune.deployment.versions import require_torch
from sgl_tune.errors import Ended, UsageError
from sgl_tune.memory.answer import Answer, MemoryOptions
from sgl_tune.memory.answer import calibrate as measure_constants
from sgl_tune.memory.fit_answer import FitOptions
from sgl_tune.memory.fit_page import fit_json, fit_markdown, show_fit
from sgl_tune.memory.ghost.chosen import Who, answered, fit_by
from sgl_tune.memory.html import render_page
from sgl_tune.memory.markdown import report_markdown
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.side_by_side import (
    show_comparison,
    show_logged,
    show_ranks,
    show_remedies,
    show_sweep,
    show_what_ifs,
)
from sgl_tune.memory.table import heading, show_constants, show_report
from sgl_tune.writing import check_place, write_text

_CODES = {"fits": 0, "refused": 2}
_QUESTION = "The question"
_FIT = "The largest start that fits"
_FILES = "Files"


def _question(*names: str, help: str, metavar: str | None = None) -> Any:
    return Option(*names, help=help, metavar=metavar, rich_help_panel=_QUESTION, show_default=False)


def _fit(*names: str, help: str, metavar: str | None = None) -> Any:
    return Option(*names, help=help, metavar=metavar, rich_help_panel=_FIT, show_default=False)


def _file(*names: str, help: str) -> Any:
    return Option(*names, help=help, metavar="FILE", rich_help_panel=_FILES, show_default=False)


def mem_report(
    flags: ServerFlags,
    command: ServerCommand = None,
    deployment: DeploymentOption = None,
    gpu_memory: Annotated[
        str | None, _question("--gpu-memory", help="A GPU of another size.", metavar="178.35GiB")
    ] = None,
    taken: Annotated[
        str | None, _question("--taken", help="What other processes hold of the GPU.", metavar="2GiB")
    ] = None,
    ranks: Annotated[
        str, _question("--ranks", help="distinct (those that differ), all, or one number.", metavar="WHICH")
    ] = "distinct",
    what_if: Annotated[
        list[str] | None,
        _question(
            "--what-if",
            help="Start it another way too; repeatable, parts joined by +: lm-head-in-autotune, "
            "graphs-ascending, dispatcher-by-max-running-requests, no-graphs, or any flag as dp=4.",
            metavar="CHANGE",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        _question("--sweep", help="mem-fraction-static=0.80:0.94:0.01", metavar="FLAG=FIRST:LAST:STEP"),
    ] = None,
    fit: Annotated[
        bool,
        _fit("--fit", help="Solve for the fraction, chunk, graphs and requests; print the flags to paste."),
    ] = False,
    free: Annotated[
        str | None, _fit("--free", help="With --fit: what must stay free at the peak.", metavar="2GiB")
    ] = None,
    requests: Annotated[
        int | None,
        _fit(
            "--requests",
            help="With --fit: requests at once; with --context-length, the KV cache holds all of them.",
            metavar="N",
        ),
    ] = None,
    measure: Annotated[
        bool,
        _question(
            "--measure",
            help="Measure here too: all ranks where there is a GPU for each, else one that stands for any.",
        ),
    ] = False,
    calibrate: Annotated[
        bool, _question("--calibrate", help="Measure what torch cannot count on this machine's GPU.")
    ] = False,
    out_file: Annotated[
        Path | None,
        _file("--out", help="Of --measure: its phases as they happen. Of --calibrate: constants."),
    ] = None,
    from_run: Annotated[
        Path | None, _file("--from", help="Report what --measure wrote, even if it died.")
    ] = None,
    from_log: Annotated[
        Path | None,
        _file("--log", "--from-log", help="A server's own output (- or .gz too), beside the prediction."),
    ] = None,
    constants: Annotated[
        Path | None, _file("--constants", help="What --calibrate or --write-constants wrote.")
    ] = None,
    write_constants: Annotated[
        Path | None, _file("--write-constants", help="Of --from-log: what its server holds outside torch.")
    ] = None,
    server: Annotated[
        str | None,
        _question(
            "--server", help="A Python, or a venv, that has SGLang: it is started on the GPU.", metavar="PATH"
        ),
    ] = None,
    core: Annotated[
        bool, _question("--core", help="Ask the runtime core, though a server is there to ask.")
    ] = False,
    trust_remote_code: Annotated[
        bool, _question("--trust-remote-code", help="Let the model's own code run, in the server's cage.")
    ] = False,
    html: Annotated[Path | None, _file("--html", help="One page with a timeline.")] = None,
    snapshot: Annotated[Path | None, _file("--snapshot", help="For pytorch.org/memory_viz.")] = None,
    record: Annotated[Path | None, _file("--record", help="All that a started server did, as JSON.")] = None,
    format: DocumentFormatOption = DocumentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Predict or measure the memory of every phase of a server's start: does it fit, and what would help.

    The start is given by SGLang's own flags, by a server command after --, or by sgl-tune.toml. A prediction
    needs no GPU. docs/memory.md explains the report.

    Example: sgl-tune mem-report --model zai-org/GLM-5.1-FP8 --tp 8 --gpu b200 --what-if tp=4

    Example: sgl-tune mem-report --fit --free 2GiB --model zai-org/GLM-5.1-FP8 --tp 8 --gpu b200
    """
    out = Output(sink(format, quiet))
    require_torch("mem-report")
    for path in filter(None, (html, snapshot, write_constants, record)):
        check_place(path)
    asked = MemoryOptions(
        flags=flags,
        command=tuple(command or ()),
        deployment=deployment,
        gpu_memory=gpu_memory,
        taken=taken,
        ranks=ranks,
        what_if=tuple(what_if or ()),
        sweep=sweep,
        measure=measure,
        out=out_file,
        from_run=from_run,
        from_log=from_log,
        constants=constants,
        write_constants=write_constants,
        snapshot=snapshot,
    )
    goals = FitOptions(fit, free, requests)
    if goals.are_given:
        _fit_start(out, asked, Who(server, core, trust_remote_code, record), goals, format, html)
        return
    if calibrate:
        _calibrate(out, asked)
        return
    found = answered(asked, Who(server, core, trust_remote_code, record), out)
    _warn_of_cage(out, found.report)
    if html is not None:
        write_text(html, render_page(found.to_json()))
        out.note(f"{html}: one page, for a browser")
    barely = " inside the error bar" if found.report.is_inside_bar else ""
    lines: list[str] = [f"{found.report.verdict}{barely}"]
    if format is DocumentFormat.markdown:
        lines = [*report_markdown(found.report, found.sweep)]
    out.result(found.to_json(), human=lambda: _show(out, found), quiet=lines)
    raise Ended(_CODES.get(found.report.verdict, 1))


def _fit_start(
    out: Output, asked: MemoryOptions, who: Who, goals: FitOptions, format: DocumentFormat, html: Path | None
) -> None:
    if html is not None:
        raise UsageError("--html shows one start, --fit looks for one", "give it the flags that --fit prints")
    found, release, title = fit_by(asked, who, goals, out)
    _warn_of_cage(out, found.best.report)
    lines = [found.best.line(release)]
    if format is DocumentFormat.markdown:
        lines = [*fit_markdown(found, release, title)]
    data = fit_json(found, release, title)
    out.result(data, human=lambda: show_fit(out, found, release, title), quiet=lines)


def _warn_of_cage(out: Output, report: MemoryReport) -> None:
    if report.cage_lacks:
        out.warn(f"the cage around the server's start lacks: {'; '.join(report.cage_lacks)}")


def _calibrate(out: Output, asked: MemoryOptions) -> None:
    constants = measure_constants(asked, out)
    out.result(constants.to_json(), human=lambda: show_constants(out, constants.constants))


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
    if found.report.logged is not None:
        show_logged(out, found.report.logged)
    for comparison in found.report.comparisons:
        show_comparison(out, comparison)
