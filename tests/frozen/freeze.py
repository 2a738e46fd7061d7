"""Writes the frozen answers: asks the wheels of four releases 300 random server commands of three seeds.

python -m tests.frozen.freeze
"""

from __future__ import annotations

import hashlib
import json

from tests.frozen.questions import COMMANDS, MODELS, Frozen, Question, file_of, models_digest
from tests.oracle.ask import Answer, ask
from tests.oracle.commands import Command, random_commands
from tests.oracle.published import Published, published
from tests.oracle.wheels import WORK, wheel_of

SEEDS = (101, 202, 303)
EACH = 100
RELEASES = ("0.5.12.post1", "0.5.17", "0.5.20", "0.5.23")
GPUS = ("H200", "B200", "H100", "RTX PRO 6000")


def main() -> None:
    asked = [(seed, one) for seed in SEEDS for one in random_commands(seed, EACH, RELEASES, GPUS)]
    answers = _answers([one for _, one in asked])
    _write_models()
    COMMANDS.mkdir(exist_ok=True)
    for release in RELEASES:
        found = tuple(_question(seed, one, answers[id(one)]) for seed, one in asked if one.release == release)
        file_of(release).write_text(_frozen(release, found).text)
        print(f"{release}: {len(found)} commands")


def _answers(commands: list[Command]) -> dict[int, Answer]:
    answers = {id(command): answer for command, answer in _asked_once_each(commands)}
    missing = [one for one in commands if id(one) not in answers]
    assert not missing, f"{len(missing)} commands without an answer: see standard error"
    return answers


def _asked_once_each(commands: list[Command]) -> list[tuple[Command, Answer]]:
    """The commands of one seed have numbers from zero: they get others while they are asked."""
    numbered = [Command(n, one.release, one.gpu, one.model, one.argv) for n, one in enumerate(commands)]
    return [(commands[one.id], answer) for one, answer in ask(numbered, WORK.absolute(), jobs=1)]


def _question(seed: int, command: Command, answer: Answer) -> Question:
    refused = answer.get("refused")
    return Question(
        seed, command.gpu, command.model, command.argv,
        answer=answer.get("server"), refused=refused, unanswered=answer.get("failed"),
    )  # fmt: skip


def _frozen(release: str, questions: tuple[Question, ...]) -> Frozen:
    wheel = wheel_of(release, WORK.absolute())
    file = next((WORK / "wheels").glob(f"sglang-{release}-*.whl"))
    pins = {"transformers": wheel.transformers, "flashinfer-python": wheel.flashinfer}
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    return Frozen(release, file.name, sha256, pins, SEEDS, models_digest(), questions)


def _write_models() -> None:
    files = {name: _files(one) for name, one in sorted(published().items()) if not name.startswith("made-up")}
    lines = [f"{json.dumps(name)}:{json.dumps(one, separators=(',', ':'))}" for name, one in files.items()]
    MODELS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _files(model: Published) -> dict[str, object]:
    more = {"hf_quant_config.json": model.modelopt_file} if model.modelopt_file is not None else {}
    return {"config.json": model.config, **more}


if __name__ == "__main__":
    main()
