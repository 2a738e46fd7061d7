"""Server commands, and the answers of SGLang's own wheels: data that is never written again."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COMMANDS = HERE / "commands"
MODELS = HERE / "models.json"
SCHEMA = 1


@dataclass(frozen=True)
class Question:
    """A question with an `answer`, a `refused` or `unanswered`: why the wheel could not be asked."""

    seed: int
    gpu: str
    model: str
    argv: tuple[str, ...]
    answer: Mapping[str, Any] | None = None
    refused: str | None = None
    unanswered: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Frozen:
    """A release's answers. `pins` are the versions that its wheel requires; `models` is MODELS' digest."""

    release: str
    wheel: str
    wheel_sha256: str
    pins: Mapping[str, str]
    seeds: tuple[int, ...]
    models: str
    questions: tuple[Question, ...]

    @property
    def text(self) -> str:
        """Return the file's text: one line for everything but questions, then one line per question."""
        head = {"schema_version": SCHEMA, **vars(self), "questions": digest(self.questions)}
        lines = [json.dumps(one.to_json(), separators=(",", ":")) for one in self.questions]
        return "\n".join([json.dumps(head), *lines, ""])


def file_of(release: str) -> Path:
    return COMMANDS / f"{release}.jsonl"


def releases() -> list[str]:
    names = [path.stem for path in COMMANDS.glob("*.jsonl")]
    return sorted(names, key=lambda one: [int(part.removeprefix("post")) for part in one.split(".")])


def frozen(release: str) -> Frozen:
    """Read the file; raise ValueError if its questions are not those that were written."""
    first, *lines = file_of(release).read_text().splitlines()
    head = json.loads(first)
    if head.pop("schema_version") != SCHEMA:
        raise ValueError(f"{file_of(release).name} has another schema")
    rows = [json.loads(line) for line in lines]
    questions = tuple(Question(**{**row, "argv": tuple(row["argv"])}) for row in rows)
    if head.pop("questions") != digest(questions):
        raise ValueError(f"{file_of(release).name} has other questions or answers than were frozen")
    seeds = tuple(head.pop("seeds"))
    return Frozen(**head, seeds=seeds, questions=questions)


def digest(questions: Iterable[Question]) -> str:
    lines = [json.dumps(one.to_json(), sort_keys=True) for one in questions]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def models_digest() -> str:
    return hashlib.sha256(MODELS.read_bytes()).hexdigest()


def write_models(folder: Path) -> None:
    """Write each model's folder below `folder`, at the path that the commands name."""
    for name, files in json.loads(MODELS.read_text()).items():
        target = folder / "models" / name
        target.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (target / file).write_text(json.dumps(content))
