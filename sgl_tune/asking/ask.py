"""Open a server for questions, and ask one question in a single call, for planners and scripts."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from runtime.record.record import Record
from runtime.sglang.flag_classes import MODELS
from sgl_tune.asking.asking import Answers, Asking, Listener
from sgl_tune.asking.question import Question, question_of, replaced, value_of
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.model_files import MODELOPT, Sought, find_files, hub_config
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import UsageError
from sgl_tune.processes.scratch import scratch
from sgl_tune.reading import bounded_bytes
from sgl_tune.servers.server import NoServer, Server, find_server

_LARGEST = 16 << 20
_COPIED = (".json", ".py")
_ODD = re.compile(r"[^\w.-]+")
_MAIN = frozenset({"--model-path", "--model"})


@contextmanager
def opened(
    server: Server,
    by: ByServer,
    total_bytes: int | None = None,
    taken_bytes: int = 0,
    fold: bool = False,
) -> Iterator[tuple[Question, Question, Answers]]:
    """Yield the question as typed, the question with local folders as its models, and what answers it."""
    named = by.flags.target.model_config
    with scratch() as private, Answers(Asking(private.folder, by.trust_remote_code, fold=fold)) as answers:
        typed = question_of(server, by.flags, by.command, total_bytes, taken_bytes)
        yield typed, with_local_models(typed, named, private.folder, os.environ), answers


def ask(
    argv: Sequence[str],
    gpu: str,
    *,
    server: str | None = None,
    rank: int = 0,
    environment: Mapping[str, str] | None = None,
    say: Listener | None = None,
) -> Record:
    """Return the record that `mem-report --record` writes. `argv`: SGLang's flags. `server`: a Python or a
    venv. An error of sgl_tune.errors is raised if there is no server, or if part of the command cannot be
    run."""
    found = find_server(server, None)
    if isinstance(found, NoServer):
        raise UsageError(found.why, found.remedy)
    by = ByServer(ServerFlags.of(gpu=gpu), ("python", "-m", "sglang.launch_server", *argv))
    with opened(found, by, fold=True) as (_, question, answers):
        return answers.answer(replace(question, environment=dict(environment or {}), rank=rank), say)


def with_local_models(
    question: Question, named: str | None, work: Path, environ: Mapping[str, str]
) -> Question:
    """Return the question with local folders as its models. `named`: a config or a preset for the main
    model. A folder with a config.json is enough, because weights are random and no tokenizer is used."""
    for flags in (_MAIN, MODELS - _MAIN):
        config = named if flags is _MAIN else None
        value = value_of(question.argv, sorted(flags))
        if value is None or (Path(value).is_dir() and config is None):
            continue
        # Some of SGLang's choices depend on the name of the model's folder.
        folder = work / f"models{len(list(work.iterdir()))}" / _ODD.sub("-", value.strip("/").lstrip("."))
        folder.mkdir(mode=0o700, parents=True)
        _fill(folder, value, config, environ)
        flag = next(name for word in question.argv if (name := word.partition("=")[0]) in flags)
        question = replace(question, argv=replaced(question.argv, flags, [flag, str(folder)]))
    return question


def _fill(folder: Path, model: str, named: str | None, environ: Mapping[str, str]) -> None:
    """Write a model's configs. A hub's cache has them, and the model's own code, as links. One whose file is
    gone is an error: without that file the server would start as another model."""
    if named is None and (cached := hub_config(model, environ)) is not None:
        for file in sorted(cached.parent.iterdir()):
            if file.suffix in _COPIED and file.stat().st_size <= _LARGEST and file.is_file():
                (folder / file.name).write_bytes(bounded_bytes(file, _LARGEST))
        return
    found = find_files(Sought(model, config=Path(named) if named else None), environ)
    (folder / "config.json").write_text(json.dumps(dict(found.config)))
    if found.quantization:
        (folder / MODELOPT).write_text(json.dumps(dict(found.quantization)))
