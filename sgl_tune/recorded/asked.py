"""A command as questions to a server: what it settles, and what its ranks tune and read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.ghost.gpus import Gpu
from runtime.record.record import Record
from sgl_tune.asking.asking import Answers, Asking, Listener
from sgl_tune.asking.local_model import with_local_models
from sgl_tune.asking.question import Question, question_of
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.processes.scratch import scratch
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from sgl_tune.recorded.ranks import records_of
from sgl_tune.servers.server import Server

GATES = "gates"


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

    def plan(self, workers: int = 1) -> RecordedPlan:
        """Of whole starts of the ranks that may differ."""
        return plan_of(records_of(self.question, self.answers, self.say), self.whose, workers)

    def of(self, server: Server, gpu: Gpu, say: Listener) -> Asked:
        """The same command put to another server, or on another GPU."""
        return replace(self, question=replace(self.question, server=server, gpu=gpu), say=say)


@contextmanager
def asking(by: ByServer, server: Server, say: Listener) -> Iterator[Asked]:
    with scratch() as private:
        typed = question_of(server, by.flags, by.command)
        name = typed.title.rstrip("/").rpartition("/")[2]
        whose = Whose(name, typed.title, _cache_dir(by, typed), typed.argv)
        question = with_local_models(typed, by.flags.model_config, private.folder, os.environ)
        with Answers(Asking(private.folder, by.trust_remote_code)) as answers:
            yield Asked(question, whose, answers, say)


def _cache_dir(by: ByServer, question: Question) -> Path:
    named = by.flags.cache_dir
    return Path(named) if named else default_cache_dir({**os.environ, **question.environment})
