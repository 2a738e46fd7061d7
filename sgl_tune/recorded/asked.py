"""A command as questions to a server: what it settles, and what its ranks tune and read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.ghost.gpus import Gpu
from runtime.record.record import Record
from runtime.sglang.tactics import Tactics
from sgl_tune.asking.ask import opened
from sgl_tune.asking.asking import Answers, Listener
from sgl_tune.asking.question import Question
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.launch import container_of
from sgl_tune.deployment.pasted_command import Around, around_server
from sgl_tune.reading import bounded_bytes
from sgl_tune.recorded.caches import files_of
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from sgl_tune.recorded.ranks import records_of
from sgl_tune.servers.server import Server

GATES = "gates"
_LARGEST = 16 << 20  # of a rank file
_THE_STARTS_OWN = ("flashinfer_version", "gpu")


@dataclass(frozen=True)
class Asked:
    """One command put to one server. `say` hears the steps of each start."""

    question: Question
    whose: Whose
    answers: Answers
    say: Listener

    def settled(self) -> Record:
        """What the server settles: of a whole start that is kept, else of one that stops there."""
        kept = self.answers.kept(self.question)
        if kept is not None and kept.settled is not None:
            return kept
        return self.answers.answer(replace(self.question, until=GATES), self.say)

    def reading(self, metadata: Mapping[str, str] | None = None) -> Asked:
        """The same server where it finds the rank files that are here. It reads them in the environment that
        they were tuned in, except for its own FlashInfer and GPU, and for `metadata`."""
        root, record = self.whose.cache_dir, self.settled()
        names = [*files_of([record], is_draft=False), *files_of([record], is_draft=True)]
        files = {name: raw for name in names if (raw := _bytes(root / name)) is not None}
        tactics = Tactics(files, {**_own_environment(files.values()), **(metadata or {})})
        return replace(self, question=replace(self.question, tactics=tactics))

    @property
    def handed(self) -> frozenset[str]:
        """The rank files that a start finds."""
        return frozenset(self.question.tactics.files if self.question.tactics else ())

    def plan(self, workers: int = 1) -> RecordedPlan:
        """Of whole starts of the ranks that may differ."""
        return plan_of(records_of(self.question, self.answers, self.say), self.whose, workers)

    def of(self, server: Server, gpu: Gpu, say: Listener) -> Asked:
        """The same command put to another server, or on another GPU."""
        return replace(self, question=replace(self.question, server=server, gpu=gpu), say=say)


@contextmanager
def asking(by: ByServer, server: Server, say: Listener) -> Iterator[Asked]:
    with opened(server, by.flags, by.command, by.trust_remote_code) as (typed, question, answers):
        name, around = typed.title.rstrip("/").rpartition("/")[2], _around(by, typed)
        for text in around.warnings:
            say({"event": "doubt", "text": text})
        whose = Whose(
            name, typed.title, Path(around.cache_dir), typed.argv, (*around.warnings, *around.notes)
        )
        yield Asked(question, whose, answers, say)


def _bytes(path: Path) -> bytes | None:
    """None of what is no file that can be read: `verify` says why."""
    try:
        return bounded_bytes(path, _LARGEST)
    except (OSError, ValueError):
        return None


def _own_environment(files: Iterable[bytes]) -> dict[str, str]:
    for raw in files:
        with suppress(ValueError, RecursionError):
            document = json.loads(raw)
            told = document.get("_metadata") if isinstance(document, dict) else None
            if isinstance(told, dict):
                kept = {name: value for name, value in told.items() if isinstance(value, str)}
                return {name: value for name, value in kept.items() if name not in _THE_STARTS_OWN}
    return {}


def _around(by: ByServer, question: Question) -> Around:
    container, named = container_of(by.command), by.flags.target
    if container is not None:
        return around_server(container, named, question.environment)
    here = default_cache_dir({**os.environ, **question.environment})
    return Around(named.cache_dir or str(here))
