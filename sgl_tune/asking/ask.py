"""One call for planners and scripts: the record of a start of a stock SGLang on a GPU that is not there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from runtime.record.record import Record
from sgl_tune.asking.asking import Answers, Asking, Listener
from sgl_tune.asking.local_model import with_local_models
from sgl_tune.asking.question import question_of
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.processes.scratch import scratch
from sgl_tune.servers.server import NoServer, find_server


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
    with scratch() as private, Answers(Asking(private.folder)) as answers:
        command = ["python", "-m", "sglang.launch_server", *argv]
        question = question_of(found, ServerFlags(gpu=gpu), command)
        question = replace(question, environment=dict(environment or {}), rank=rank)
        return answers.answer(with_local_models(question, None, private.folder, os.environ), say)
