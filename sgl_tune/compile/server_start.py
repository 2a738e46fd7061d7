"""Start the server once for what it compiles, with dummy weights, and stop it when it is ready."""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from runtime.baking.toolkits import program_path
from sgl_tune.asking.question import value_of
from sgl_tune.cli.out import Output
from sgl_tune.compile.goal import Goal
from sgl_tune.deployment.versions import Gpu
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.command import safe_environment
from sgl_tune.start_report.report import StartReport
from sgl_tune.start_report.running import start_and_stop

_LOOPBACK = "127.0.0.1"
_MEETING = ("--dist-init-addr", "--nccl-init-addr")


@dataclass(frozen=True, slots=True)
class Started:
    """The result of the server's start. `compiled`: modules in its report. `written`: files per store."""

    seconds: float
    ranks: int
    compiled: tuple[str, ...]
    written: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


def start(goal: Goal, variables: Mapping[str, str], silence: float, out: Output) -> Started:
    words = server_words(goal)
    path = {"PATH": program_path(os.environ)}
    environment = {**safe_environment(), **goal.environment, **path, **variables}
    with out.progress("starting its server with dummy weights") as progress:
        report = start_and_stop(words, environment, silence, lambda doing: progress.advance(0, doing))
    if not report.ready:
        way = f"`sgl-tune start-report -- {' '.join(words[:3])} ...` shows its output"
        raise WorkFailed(f"its server did not get ready: {_last_words(report)}", way)
    written = {one.store: one.files for one in report.written or ()}
    return Started(report.wall_seconds, report.ranks, report.compiled, written)


def _last_words(report: StartReport) -> str:
    word = report.failure or next(iter(report.last_words), None)
    stands = f"it stands in {report.stands_in}" if report.stands_in else "it said nothing"
    return word.text if word is not None else stands


def why_not_started(goal: Goal, here: Sequence[Gpu]) -> str | None:
    """Return why the server cannot be started on this machine, or None if it can."""
    if goal.is_alone is not None:
        return goal.is_alone
    if len(here) < goal.ranks:
        return f"it has {goal.ranks} ranks, and {len(here)} GPUs are here"
    if here[0].arch != goal.arch:
        return f"it is for {goal.arch}, and the GPUs here are {here[0].arch}"
    return None


def server_words(goal: Goal) -> list[str]:
    """Return the server's command. Our flags come last, because the last of two equal flags counts."""
    own = ["--load-format", "dummy", "--host", _LOOPBACK, "--port", str(_free_port())]
    arguments = goal.arguments
    if int(arguments.get("dp_size") or 1) > 1 and not arguments.get("enable_dp_attention"):
        own += ["--dp-size", "1"]  # replicas are equal, so one is enough
    if value_of(goal.words, _MEETING) is not None:
        own += [_MEETING[0], f"{_LOOPBACK}:{_free_port()}"]
    return [str(goal.python), "-m", "sglang.launch_server", *goal.words, *own]


def _free_port() -> int:
    """Return a free port. SGLang also uses ports after it; the system's free ports are high numbers."""
    with socket.socket() as asker:
        asker.bind((_LOOPBACK, 0))
        return int(asker.getsockname()[1])
