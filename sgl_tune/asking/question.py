"""A question to a server: its own flags and variables, as the user gave them, and a GPU of our table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runtime.ghost.gpus import Gpu, gpus
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.models import Sought, find_model
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags, flag_names, flag_types
from sgl_tune.errors import UsageError

MODEL_FLAGS = ("--model-path", "--model")


@dataclass(frozen=True)
class Question:
    """`argv`: SGLang's flags. `total_bytes`: of the GPU, where it is another than the table's."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    gpu: Gpu
    total_bytes: int | None = None
    rank: int = 0

    @property
    def model(self) -> str:
        """The model as it was typed."""
        return value_of(self.argv, MODEL_FLAGS) or ""

    def with_flags(self, flags: Sequence[str]) -> Question:
        """The same start with these flags after the others: the later of two counts."""
        return replace(self, argv=(*self.argv, *flags))

    @property
    def text(self) -> str:
        return shlex.join(self.argv)


def question_of(flags: ServerFlags, command: Sequence[str], total_bytes: int | None = None) -> Question:
    """From our own options, or from the server command after `--`, which may be a manifest."""
    gpu = _gpu(flags.gpu)
    if command:
        launch = launch_of(command)
        argv = [str(word) for word in launch.arguments]
        environment = {name: str(word) for name, word in launch.environment.items()}
        argv += server_flags(flags)
    else:
        argv, environment = server_flags(flags), {}
    if value_of(argv, MODEL_FLAGS) is None and argv and not argv[0].startswith("-"):
        argv = ["--model-path", *argv]
    return Question(tuple(argv), environment, gpu, total_bytes)


def server_flags(flags: ServerFlags) -> list[str]:
    """The flags that are the server's, in its own spelling."""
    spelled: dict[str, str] = {}
    for name, field in flag_names().items():
        spelled.setdefault(field, name)
    words: list[str] = []
    for field, value in flags.given().items():
        if field in TARGET_FIELDS:
            continue
        kind = flag_types()[field]
        if kind is bool:
            words += [spelled[field]] if value else []
        elif kind is list:
            words += [spelled[field], *map(str, value)]
        else:
            words += [spelled[field], str(value)]
    return words


def value_of(argv: Sequence[str], names: Sequence[str]) -> str | None:
    """The value of a flag; of several the last, as argparse takes it."""
    found = None
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else argv[place + 1] if place + 1 < len(argv) else None
    return found


def with_local_model(
    question: Question, named: str | None, work: Path, environ: Mapping[str, str]
) -> Question:
    """The same question with a folder as its model: one made of the config that is known here, if need be."""
    if Path(question.model).is_dir() and named is None:
        return question
    config = Path(named) if named is not None else None
    found = find_model(Sought(question.model, config=config), environ)
    folder = work / "model"
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(found.checkpoint.hf)))
    if found.checkpoint.quant_file:
        (folder / "hf_quant_config.json").write_text(json.dumps(dict(found.checkpoint.quant_file)))
    return replace(question, argv=_with_model(question.argv, str(folder)))


def _with_model(argv: Sequence[str], folder: str) -> tuple[str, ...]:
    """The same words with another model, wherever they name it."""
    words: list[str] = []
    names_it = False
    for word in argv:
        flag, equals, _ = word.partition("=")
        if names_it:
            words.append(folder)
        else:
            words.append(f"{flag}={folder}" if equals and flag in MODEL_FLAGS else word)
        names_it = not names_it and word in MODEL_FLAGS
    return tuple(words)


def _gpu(name: str | None) -> Gpu:
    table = gpus()
    if name is None:
        raise UsageError("no GPU is named, and there is none here", "name the target: --gpu h200")
    key = name.lower().replace(" ", "-")
    if key not in table:
        raise UsageError(f"--gpu {name[:80]} is not in the table", f"one of {', '.join(sorted(table))}")
    return table[key]
