"""A server that is open for questions, and one call for planners and scripts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from runtime.record.record import Record
from sgl_tune.asking.asking import Answers, Asking, Listener
from sgl_tune.asking.local_model import with_local_models
from sgl_tune.asking.question import Question, question_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.processes.scratch import scratch
from sgl_tune.servers.server import NoServer, Server, find_server


@contextmanager
def opened(
    server: Server,
    flags: ServerFlags,
    command: Sequence[str] = (),
    trust_remote_code: bool = False,
    total_bytes: int | None = None,
    taken_bytes: int = 0,
) -> Iterator[tuple[Question, Question, Answers]]:
    """The question as it was typed, the same with folders as its models, and who answers it."""
    with scratch() as private, Answers(Asking(private.folder, trust_remote_code)) as answers:
        typed = question_of(server, flags, command, total_bytes, taken_bytes)
        yield typed, with_local_models(typed, flags.target.model_config, private.folder, os.environ), answers


def ask(
    argv: Sequence[str],
    gpu: str,
    *,
    server: str | None = None,
    rank: int = 0,
    environment: Mapping[str, str] | None = None,
    say: Listener | None = None,
) -> Record:
    """The record that `mem-report --record` writes. `argv`: SGLang's flags; `server`: a Python or a venv.

    Raises an error of sgl_tune.errors where there is no server, or part of the command is not run.
    """
    found = find_server(server, None)
    if isinstance(found, NoServer):
        raise UsageError(found.why, found.remedy)
    command = ["python", "-m", "sglang.launch_server", *argv]
    with opened(found, ServerFlags.of(gpu=gpu), command) as (_, question, answers):
        return answers.answer(replace(question, environment=dict(environment or {}), rank=rank), say)
