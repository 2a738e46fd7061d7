"""Starts of the user's own server on the ghost."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from runtime.record.events import Event
from runtime.record.record import Record
from runtime.sglang.releases import NEWEST, Release
from runtime.sglang.server_process import STOP
from runtime.sglang.variables import Left
from sgl_tune.asking.ask import opened
from sgl_tune.asking.asking import Answers
from sgl_tune.asking.live import Live
from sgl_tune.asking.question import Question, gpu_of
from sgl_tune.cli.out import Output
from sgl_tune.errors import UsageError
from sgl_tune.memory.of_record import report_of
from sgl_tune.memory.options import MemoryOptions
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.starting import (
    AS_IS,
    BEHAVIOURS,
    VARIABLE,
    Change,
    Layout,
    Started,
    changed_command,
    first_rank,
    layout_of,
)
from sgl_tune.servers.server import NoServer, Server, find_server
from sgl_tune.units import parse_size

_GRAPHS = ("cuda_graph_max_bs", "cuda_graph_max_bs_decode")


@contextmanager
def server_starter(
    asked: MemoryOptions, server: Server, total_bytes: int | None, out: Output
) -> "Iterator[ServerStarter]":
    """Yield what starts the server. `total_bytes`: the GPU's memory, if a log says it."""
    total = parse_size(asked.gpu_memory, "--gpu-memory") if asked.gpu_memory else total_bytes
    taken = parse_size(asked.taken, "--taken") if asked.taken else 0
    first_rank(asked.ranks)
    with opened(server, asked.by, total, taken, asked.fold) as (typed, question, answers):
        yield ServerStarter(answers, question, typed.argv, asked, out)


class ServerStarter:
    """Starts the user's server. `typed`: the flags as given, with the model's name and not its folder."""

    def __init__(
        self, answers: Answers, question: Question, typed: Sequence[str], asked: MemoryOptions, out: Output
    ) -> None:
        self._answers, self._question, self._typed = answers, question, typed
        self._ranks, self._snapshot = asked.ranks, asked.snapshot
        self._out, self._live = out, Live(out, question.server)

    @property
    def release(self) -> Release:
        """Return the server's release. An unknown release gets the flags of the newest known one."""
        return NEWEST._replace(version=self._question.server.sglang)

    def check(self, change: Change) -> None:
        changed(self._question, change)

    def command(self, change: Change) -> str:
        return changed_command(self._typed, self._question.environment, change)

    def start(self, change: Change, least: int | None = None) -> Started:
        """Start the first rank, and the ranks whose memory may differ according to its record. Each rank
        gets as many KV tokens as the rank with the fewest."""
        if change is not AS_IS:
            self._out.note(f"trying {change.line}")
        question = changed(self._question, change)
        is_same = question.server is self._question.server
        live = self._live if is_same else Live(self._out, question.server)

        def say(event: Event) -> object:
            """Stop the start when a phase has left less than `least`, because later phases decide nothing."""
            live(event)
            if least is None or event["event"] != "phase":
                return None
            return STOP if event["least_free"] < least else None

        snapshot = self._snapshot if change is AS_IS else None
        answer = self._answers.answer
        rank = first_rank(self._ranks)
        if rank and (resolved := answer(replace(question, until="arguments"))).arguments:
            layout_of(resolved).started(self._ranks)  # a rank that is not there would wait for the others
        first = answer(replace(question, rank=rank), say, snapshot)
        layout = layout_of(first)
        ranks = layout.started(self._ranks) if layout.ranks > 1 else (first.asked.rank,)
        found = [first, *(answer(replace(question, rank=rank), say) for rank in ranks[1:])]
        sizes = [record.sizes for record in found if record.sizes is not None]
        if layout.pp > 1 and len(sizes) == len(found):
            fewest = min(one.kv_tokens for one in sizes)
            limited = question.with_flags(["--max-total-tokens", str(fewest)])
            for place, (record, one) in enumerate(zip(tuple(found), sizes, strict=True)):
                if one.kv_tokens != fewest:
                    found[place] = answer(replace(limited, rank=record.asked.rank), say)
        return self._started(question, layout, found)

    def _started(self, question: Question, layout: Layout, records: Sequence[Record]) -> Started:
        reports = tuple(self._report(record, question) for record in records)
        found = Started(reports, layout, _graphs(records[0]), sum(record.cost.cpu for record in records))
        return replace(found, record=records[reports.index(found.report)])

    def _report(self, record: Record, question: Question) -> MemoryReport:
        """Return the report of a record, with a note for each flag that the start was not given."""
        title = question.title.rstrip("/").rpartition("/")[2] or question.title
        flags = shlex.join(question.argv).replace(question.model, question.title)
        outside = self._answers.asking.outside
        found = report_of(record, question.gpu, title, outside, flags, question.taken_bytes)
        return found.with_notes(*_left_notes(self._answers.check(question).left))


def _graphs(record: Record) -> int | None:
    """Return the largest batch of a decode graph that SGLang resolved, or None if it captures none."""
    if record.arguments.get("disable_cuda_graph") is True:
        return None
    sizes = (record.arguments.get(name) for name in _GRAPHS)
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _left_notes(left: Sequence[Left]) -> list[str]:
    """Return one line per reason for not giving flags to the start."""
    names: dict[str, list[str]] = {}
    for one in left:
        if not one.matters:
            names.setdefault(one.why, []).append(one.name)
    return [f"not given to the start, because {why}: {', '.join(of)}" for why, of in names.items()]


def changed(question: Question, change: Change) -> Question:
    for name, value in change.parts:
        question = _changed(question, name, value)
    return question


def _changed(question: Question, name: str, value: str | None) -> Question:
    if name in BEHAVIOURS:
        raise UsageError(
            f"--what-if {name} changes SGLang's own code, and this server runs as it is",
            "add --server core: the runtime core has this behaviour",
        )
    if name == "gpu":
        return replace(question, gpu=gpu_of(value), total_bytes=None)
    if name == "sglang":
        found = find_server(None, value)
        if isinstance(found, NoServer):
            raise UsageError(f"--what-if sglang={value}: {found.why}", found.remedy)
        return replace(question, server=found)
    if VARIABLE.fullmatch(name):
        environment: Mapping[str, str] = {**question.environment, name: value or ""}
        return replace(question, environment=environment)
    flag = f"--{name}"
    if value in ("false", "False"):
        return replace(question, argv=tuple(word for word in question.argv if word != flag))
    return question.with_flags([flag, *([] if value in (None, "true", "True") else str(value).split())])
