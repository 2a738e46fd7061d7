"""Who answers a question about memory: a log, a measurement, the user's own server or the core."""

from __future__ import annotations

from dataclasses import replace

from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.memory.compare import beside_log
from sgl_tune.memory.core.measured import measured_answer
from sgl_tune.memory.options import MemoryOptions, ShowOptions
from sgl_tune.memory.report import Answer
from sgl_tune.memory.server_args import flags_of_log, not_taken
from sgl_tune.memory.study import of_project, starter_of, study
from sgl_tune.server_log.log import ServerLog

_MISSED = "the prediction does not include these settings of the log's server:"


def answer(asked: MemoryOptions, shown: ShowOptions, out: Output) -> Answer:
    if sum((asked.measure, asked.from_run is not None, asked.from_log is not None)) > 1:
        raise UsageError("--measure and --log are two sources of one report", "give one")
    if asked.measure or asked.from_run is not None:
        return measured_answer(asked, out)
    if asked.from_log is not None:
        return _beside_log(asked, asked.from_log.log, shown, out)
    asked = of_project(asked)
    with starter_of(asked, shown, out) as starter:
        return study(asked, starter, out, shown.record)


def _beside_log(asked: MemoryOptions, log: ServerLog, shown: ShowOptions, out: Output) -> Answer:
    """The log's own flags say what to predict, where the command line does not."""
    given = asked.command or asked.deployment
    asked = asked if given else replace(asked, flags=flags_of_log(log.server_args or "", asked.flags))
    if not asked.names_a_start:
        raise UsageError(
            f"{log.path} does not show the server's flags: it has no server_args= line",
            "give the server's flags as well, --model-path first",
        )
    total = log.oom.numbers.total_bytes or None if log.oom and log.oom.numbers else None
    with starter_of(asked, shown, out, total) as starter:
        found = study(asked, starter, out, shown.record)
    compared = beside_log(found.report, log)
    report = replace(found.report, comparisons=(compared,) if compared.rows else ())
    if missed := () if given else not_taken(log.server_args or ""):
        report = report.with_notes(warnings=[f"{_MISSED} {', '.join(missed)}; give the command after --"])
    return Answer(report, found.sweep)
