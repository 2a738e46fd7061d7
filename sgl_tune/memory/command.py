"""Run mem-report: choose what answers a question about memory, and print the answer."""

import re
import sys
from dataclasses import replace
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.deployment.flag_names import flag_types
from sgl_tune.deployment.options import LONG, TARGET_FIELDS, ServerFlags
from sgl_tune.errors import Ended, SglTuneError, UsageError
from sgl_tune.memory.core.measured import measured_answer
from sgl_tune.memory.options import FitOptions, MemoryOptions, ShowOptions
from sgl_tune.memory.report import Answer, MemoryReport
from sgl_tune.memory.study import beside_log, fitted, starter_of, study
from sgl_tune.memory.views.fit_page import fit_json, show_fit
from sgl_tune.memory.views.tables import render_page
from sgl_tune.memory.views.terminal import show_answer
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.verdict import Outcome, show_outcome
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
    line = f"{found.report.verdict}{' inside the error bar' if found.report.is_inside_bar else ''}"
    out.result(found.to_json(), human=lambda: _show(out, found, shown), quiet=[line])
    raise Ended(_CODES.get(found.report.verdict, 1))


def _answered(out: Output, asked: MemoryOptions, shown: ShowOptions) -> Answer:
    found = answer(asked, shown, out)
    _warn_of_cage(out, found.report)
    if shown.html is not None:
        write_text(shown.html, render_page(found))
        out.note(f"wrote {shown.html}, a page for a browser")
    return found


def _beside_death(out: Output, asked: MemoryOptions, dead: Outcome, shown: ShowOptions) -> None:
    """Print the log's verdict, then the prediction; if that fails, the verdict stands alone."""
    show_outcome(out, dead)
    found, why = None, None
    try:
        found = _answered(out, asked, shown)
    except SglTuneError as error:
        why = error.message
        page = f", and no {shown.html}" if shown.html else ""
        out.warn(f"no prediction beside the log{page}: {why}")
        if error.remedy:
            out.hint(error.remedy)
    data = {**dead.to_json(), "predicted": found.to_json() if found else None, "not_predicted": why}
    out.result(data, human=lambda: _show(out, found, shown) if found else None, quiet=[dead.headline])
    raise Ended(1)


def _fit_start(out: Output, asked: MemoryOptions, goals: FitOptions, shown: ShowOptions) -> None:
    if shown.html is not None:
        raise UsageError("--html shows one start, --fit looks for one", "give it the flags that --fit prints")
    found, starter = fitted(asked, goals, out)
    _warn_of_cage(out, found.best.report)
    release, command = starter.release, starter.command(found.best.change(starter.release))
    data, lines = fit_json(found, release, command), [found.best.change(release).line]
    out.result(data, human=lambda: show_fit(out, found, command, shown.verbose), quiet=lines)


def _warn_of_cage(out: Output, report: MemoryReport) -> None:
    if report.trust.cage_lacks:
        out.warn(f"the cage around the server's start lacks: {'; '.join(report.trust.cage_lacks)}")


def _show(out: Output, found: Answer, shown: ShowOptions) -> None:
    show_answer(out, found, shown.verbose, "utf" in (sys.stdout.encoding or "utf-8").lower())


_MISSED = "the prediction does not include these settings of the log's server:"
# The log shows their resolved values: SGLang reads them from elsewhere when they are not set.
_LEFT_OUT = TARGET_FIELDS | {"dist_init_addr", "flashinfer_autotune_skip_ops", "cuda_graph_bs"}
_MATTER = """
    cpu_offload_gb enable_lora enable_hierarchical_cache enable_memory_saver enable_two_batch_overlap
    enable_single_batch_overlap enable_symm_mem enable_torch_compile json_model_override_args
    ep_num_redundant_experts
"""
_UNSET = ("None", "False", "0", "{}", "")


def answer(asked: MemoryOptions, shown: ShowOptions, out: Output) -> Answer:
    if sum((asked.measure, asked.from_run is not None, asked.from_log is not None)) > 1:
        raise UsageError("--measure and --log are two sources of one report", "give one")
    if asked.measure or asked.from_run is not None:
        return measured_answer(asked, out)
    if asked.from_log is not None:
        return _beside_log(asked, asked.from_log.log, shown, out)
    asked = replace(asked, by=asked.by.one())
    with starter_of(asked, out) as starter:
        return study(asked, starter, out, shown.record)


def _beside_log(asked: MemoryOptions, log: ServerLog, shown: ShowOptions, out: Output) -> Answer:
    """Predict the start that the log's own flags describe; flags of the command line win over them."""
    by, given = asked.by, asked.by.command or asked.by.deployment
    by = by if given else replace(by, flags=flags_of_log(log.server_args or "", by.flags))
    asked = replace(asked, by=by)
    if not by.names_a_start:
        raise UsageError(
            f"{log.path} does not show the server's flags: it has no server_args= line",
            "give the server's flags as well, --model-path first",
        )
    total = log.oom.numbers.total_bytes or None if log.oom and log.oom.numbers else None
    with starter_of(asked, out, total) as starter:
        found = study(asked, starter, out, shown.record)
    compared = beside_log(found.report, log)
    report = replace(found.report, comparisons=(compared,) if compared.rows else ())
    if missed := () if given else not_taken(log.server_args or ""):
        report = report.with_notes(warnings=[f"{_MISSED} {', '.join(missed)}; give the command after --"])
    return Answer(report, found.sweep)


def flags_of_log(server_args: str, given: ServerFlags) -> ServerFlags:
    """Return the flags in the log's server_args= line, changed by the `given` flags. The line is a repr of
    ServerArgs, or of a dict since 0.5.18."""
    logged = {}
    for name, kind in flag_types().items():
        if name not in _LEFT_OUT and (value := _value(server_args, LONG.get(name, name), kind)) is not None:
            logged[name] = value
    if logged.get("enable_dp_attention") and "chunked_prefill_size" in logged:
        # SGLang divides the chunk among DP ranks before it prints it.
        logged["chunked_prefill_size"] *= max(1, logged.get("dp", 1))
    return given.over(ServerFlags.of(**logged))


def not_taken(server_args: str) -> tuple[str, ...]:
    """Return the server's settings that take memory and that sgl-tune has no flag for."""
    said = {name: _word(server_args, name) for name in _MATTER.split()}
    return tuple(f"--{name.replace('_', '-')} {word}" for name, word in said.items() if word not in _UNSET)


def _value(text: str, name: str, kind: type) -> Any:
    word = _word(text, name)
    if word in ("None", "auto"):
        return None
    if kind is bool:
        return {"True": True, "False": False}.get(word)
    try:
        return kind(word)
    except ValueError:
        return None


def _word(text: str, name: str) -> str:
    match = re.search(rf"[(,{{ ]'?{name}'?[=:] ?('[^']{{0,400}}'|[\w.-]{{1,40}})", text)
    return match[1].strip("'") if match else "None"
