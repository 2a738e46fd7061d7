"""A report from the user's own server: started on the ghost, with each what-if and each step of a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from runtime.ghost.outside import table
from runtime.record.events import Event
from sgl_tune.asking.asking import Answers, Asking
from sgl_tune.asking.question import Question, question_of, server_flags, with_local_model
from sgl_tune.cli.out import Output
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.memory.answer import Answer, MemoryOptions
from sgl_tune.memory.of_record import NAMES, ROOT, report_of
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.what_if import WhatIf, parse_sweep, parse_what_if
from sgl_tune.processes.scratch import scratch
from sgl_tune.servers.server import Server
from sgl_tune.units import memory_bytes, parse_size


def asked_of(asked: MemoryOptions, server: Server, trust_remote_code: bool, out: Output) -> Answer:
    """The answer of this server. Phases are shown while the server's own steps pass."""
    total = parse_size(asked.gpu_memory, "--gpu-memory") if asked.gpu_memory else None
    what_ifs = [parse_what_if(text) for text in asked.what_if]
    sweep = parse_sweep(asked.sweep) if asked.sweep else ()
    for one in (*what_ifs, *sweep):
        _check(one)
    with ExitStack() as closing:
        private = closing.enter_context(scratch())
        question = question_of(asked.flags, asked.command, total)
        question = with_local_model(question, asked.flags.model_config, private.folder, os.environ)
        question = replace(question, rank=_rank(asked.ranks))
        live = Live(out)
        out.note(
            f"starting SGLang {server.sglang} of {server.python} on a {question.gpu.name} that is not there"
        )
        answers = closing.enter_context(Answers(Asking(server, trust_remote_code), live))

        def report(of: Question) -> MemoryReport:
            return _report(answers, of)

        found = report(question)
        changed = {one.name: report(question.with_flags(_flags(one))) for one in what_ifs}
        stepped = {one.name: report(question.with_flags(_flags(one))) for one in sweep}
        return Answer(found.with_what_ifs(changed), stepped)


class Live:
    """Shows each step of a start when it ends, with its peak."""

    def __init__(self, out: Output) -> None:
        self._note: Callable[[str], None] = out.note

    def __call__(self, event: Event) -> None:
        if event["event"] == "phase" and event["name"] != ROOT:
            name = NAMES.get(event["name"], event["name"])
            self._note(f"  {name}: {memory_bytes(event['peak'])} at the peak, {event['seconds']:.1f} s")


def _report(answers: Answers, question: Question) -> MemoryReport:
    record = answers.answer(question)
    title = os.path.basename(question.model.rstrip("/")) or "model"  # noqa: PTH119
    return report_of(record, question.gpu.name, title, table().doubt_of(record.counted))


def _rank(ranks: str) -> int:
    if ranks.isdecimal():
        return int(ranks)
    return 0


def _flags(change: WhatIf) -> list[str]:
    return server_flags(ServerFlags(**change.flags))


def _check(change: WhatIf) -> None:
    if change.behaviours:
        names = ", ".join(sorted(change.behaviours))
        raise UsageError(
            f"--what-if {names} changes SGLang's own code, which a server that runs as it is does not do",
            "add --core to ask the runtime core, which has these behaviours",
        )
