"""From what was asked on the command line to a fit by starts of the user's own server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from runtime.record.events import Event
from runtime.record.record import Record
from runtime.sglang.releases import Release
from runtime.sglang.server_process import STOP
from sgl_tune.asking.asking import Answers, Asking
from sgl_tune.asking.question import Question
from sgl_tune.cli.out import Output
from sgl_tune.memory.ghost.asked import ServerOptions, Starts, to_ask
from sgl_tune.memory.ghost.fit import Search
from sgl_tune.memory.ghost.live import Live
from sgl_tune.memory.ghost.ranks import first_rank, layout_of
from sgl_tune.memory.ghost.words import release_of, words
from sgl_tune.memory.options import FitOptions, MemoryOptions, check_alone
from sgl_tune.memory.report import MemoryReport, worst
from sgl_tune.memory.table import heading
from sgl_tune.memory.trial import Fit, flag_line
from sgl_tune.processes.scratch import scratch

_GRAPHS = ("cuda_graph_max_bs", "cuda_graph_max_bs_decode")


@dataclass(frozen=True, slots=True)
class _Outcome:
    report: MemoryReport
    ranks: int
    graphs: int | None
    seconds: float


def fitted_on_server(
    asked: MemoryOptions, goals: FitOptions, options: ServerOptions, out: Output
) -> tuple[Fit, Release, str]:
    """With the release by whose names the flags are printed, and a heading."""
    check_alone(asked)
    first_rank(asked.ranks)
    release = release_of(options.server.sglang)
    with ExitStack() as closing:
        work = closing.enter_context(scratch()).folder
        question = to_ask(asked, options.server, work)
        answers = closing.enter_context(Answers(Asking(work, options.trust_remote_code)))
        starter = _Starter(answers, question, asked.ranks, release, out)
        found = Search(starter, goals.goals(asked.flags.context_length)).fit()
    return found, release, heading(found.best.report)


class _Starter:
    """Starts the server with other flags, all ranks that differ; the worst of them counts."""

    def __init__(
        self, answers: Answers, question: Question, ranks: str, release: Release, out: Output
    ) -> None:
        self._answers, self._question, self._ranks = answers, question, ranks
        self._release, self._out = release, out

    def __call__(self, flags: Mapping[str, Any], least: int | None) -> _Outcome:
        line = flag_line(dict(flags), self._release)
        self._out.note(f"trying {line or 'the flags as they are'}")
        live = Live(self._out, self._question.server)
        listener = live if least is None else _Until(live, least)
        starts = Starts(self._answers, self._ranks, listener).ranks(
            self._question.with_flags(words(self._release, flags))
        )
        report = worst([one for _, one in starts])
        first = starts[0][0]
        return _Outcome(
            report, layout_of(first).dp, _graphs(first), sum(record.cost.cpu for record, _ in starts)
        )


class _Until:
    """Ends a start once a phase has left less than `least` bytes: what comes after decides nothing."""

    def __init__(self, live: Live, least: int) -> None:
        self._live, self._least = live, least

    def __call__(self, event: Event) -> object:
        self._live(event)
        if event["event"] == "phase" and _left(event) < self._least:
            return STOP
        return None


def _left(phase: Event) -> int:
    outside = phase["total"] - phase["free"] - phase["reserved"]
    return int(phase["total"] - outside - phase["reserved_peak"])


def _graphs(record: Record) -> int | None:
    """The largest batch of a decode graph, as SGLang resolved it; None where it captures none."""
    if record.arguments.get("disable_cuda_graph") is True:
        return None
    sizes = (record.arguments.get(name) for name in _GRAPHS)
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)
