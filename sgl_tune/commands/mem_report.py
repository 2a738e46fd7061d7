"""`sgl-tune mem-report`: show which startup phase takes the memory."""

import os
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cli.format import DocumentFormat, DocumentFormatOption, QuietOption
from sgl_tune.cli.pages import SCHEMA_VERSIONS
from sgl_tune.cli.parameters import Option
from sgl_tune.commands.asked import RemoteCodeOption, ServerOption, asked_by
from sgl_tune.deployment.file_option import FileOption
from sgl_tune.deployment.options import PROJECT_FILE, ServerCommand, ServerFlags, TargetOption
from sgl_tune.errors import Ended, UsageError
from sgl_tune.markdown import output_of
from sgl_tune.memory.options import FitOptions, MemoryOptions, ShowOptions, is_of_a_run
from sgl_tune.server_log.log import read_server_log
from sgl_tune.server_log.verdict import outcome_of, show_outcome
from sgl_tune.verify.environment import read_target

_NAME_ONE = "sgl-tune mem-report --gpu h200 -- python -m sglang.launch_server --model-path M --tp 8"
_QUESTION = "The question"
_FIT = "The largest start that fits"
_FILES = "Files"


def _question(*names: str, help: str, metavar: str | None = None, panel: str = _QUESTION) -> Any:
    return Option(*names, help=help, metavar=metavar, rich_help_panel=panel)


_fit = partial(_question, panel=_FIT)
_file = partial(_question, panel=_FILES, metavar="FILE")


def mem_report(
    flags: ServerFlags,
    command: ServerCommand = None,
    file: FileOption = None,
    gpu_memory: Annotated[
        str | None, _question("--gpu-memory", help="Assume a GPU with this much memory.", metavar="178.35GiB")
    ] = None,
    taken: Annotated[
        str | None, _question("--taken", help="GPU memory that other processes hold.", metavar="2GiB")
    ] = None,
    ranks: Annotated[
        str,
        _question("--ranks", help="distinct (one of each kind), all, or a rank's number.", metavar="WHICH"),
    ] = "distinct",
    what_if: Annotated[
        list[str] | None,
        _question(
            "--what-if",
            help="Compare with a changed start (repeatable; + joins changes): lm-head-in-autotune, "
            "graphs-ascending, dispatcher-by-max-running-requests, no-graphs, or any flag, such as dp=4.",
            metavar="CHANGE",
        ),
    ] = None,
    sweep: Annotated[
        str | None,
        _question("--sweep", help="mem-fraction-static=0.80:0.94:0.01", metavar="FLAG=FIRST:LAST:STEP"),
    ] = None,
    fit: Annotated[
        bool,
        _fit("--fit", help="Find memory fraction, chunk, graphs and requests that fit; print the flags."),
    ] = False,
    free: Annotated[
        str | None, _fit("--free", help="With --fit: memory to leave free at the peak.", metavar="2GiB")
    ] = None,
    requests: Annotated[
        int | None,
        _fit(
            "--requests",
            help="With --fit: concurrent requests; with --context-length, all of that length must fit.",
            metavar="N",
        ),
    ] = None,
    no_fold: Annotated[bool, Option("--no-fold", help="Run all of equal layers.", hidden=True)] = False,
    measure: Annotated[
        bool, _question("--measure", help="Also measure here: every rank if each has a GPU, else one rank.")
    ] = False,
    out_file: Annotated[
        Path | None, _file("--out", help="With --measure: write each phase as it ends.")
    ] = None,
    log: Annotated[
        Path | None,
        _file(
            "--log", help="A server's log (.gz and - too): say what killed it. Or a file of --measure --out."
        ),
    ] = None,
    target: TargetOption = None,
    server: ServerOption = None,
    trust_remote_code: RemoteCodeOption = False,
    html: Annotated[
        Path | None,
        _file(
            "--html",
            help="Write an HTML page with each phase's memory. Beside a log, give the server's flags too.",
        ),
    ] = None,
    snapshot: Annotated[
        Path | None, _file("--snapshot", help="Write a snapshot for pytorch.org/memory_viz.")
    ] = None,
    record: Annotated[Path | None, _file("--record", help="Write the start's record, as JSON.")] = None,
    verbose: Annotated[
        bool, Option("-v", "--verbose", help="Also show where the numbers come from.")
    ] = False,
    format: DocumentFormatOption = DocumentFormat.human,
    quiet: QuietOption = False,
) -> None:
    """Predict or measure the memory of each phase of a server's start: does it fit, and if not, what helps.

    Give the start as SGLang's own flags, as a server command after --, or in sgl-tune.toml. A prediction
    needs no GPU. --log alone says why a server died. docs/memory.md explains the report.

    Example: sgl-tune mem-report --model zai-org/GLM-5.1-FP8 --tp 8 --gpu b200 --what-if tp=4

    Example: sgl-tune mem-report --log server.log

    Example: sgl-tune mem-report --fit --free 2GiB --model zai-org/GLM-5.1-FP8 --tp 8 --gpu b200
    """
    out = output_of(format, quiet, SCHEMA_VERSIONS["mem-report"])
    by = asked_by(flags, file, command, server, trust_remote_code)
    if target is not None:
        by = by if by.deployment is None else by.one()
        by = replace(by, flags=read_target(target).flags(by.flags, by.command))
    is_measured = log is not None and is_of_a_run(log)
    asked = MemoryOptions(
        by,
        gpu_memory=gpu_memory,
        taken=taken,
        ranks=ranks,
        what_if=tuple(what_if or ()),
        sweep=sweep,
        measure=measure,
        out=out_file,
        from_run=log if is_measured else None,
        from_log=outcome_of(read_server_log(log)) if log and not is_measured else None,
        snapshot=snapshot,
        fold=not no_fold,
    )
    goals = FitOptions(fit, free, requests)
    shown = ShowOptions(html, record, verbose)
    is_plain = goals == FitOptions() and shown == ShowOptions(verbose=verbose)
    if (died := asked.from_log) is not None and asked.is_log_alone and is_plain:
        out.result(died.to_json(), human=partial(show_outcome, out, died), quiet=[died.headline])
        raise Ended(0 if died.verdict == "ready" else 1)
    if log is None and not by.names_a_start and not os.path.lexists(PROJECT_FILE):
        raise UsageError("no model is named, so there is no start to predict", _NAME_ONE)
    if find_spec("torch") is None:
        raise UsageError("mem-report needs torch", "pip install 'sgl-tune[runtime]'")
    from sgl_tune.memory.command import report_start  # imports torch, which a log does not need

    report_start(out, asked, goals, shown)
