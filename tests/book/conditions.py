"""Each row of the checks on a command that it refuses, one thing that it looks at told otherwise at a time.

What a row looks at is seen while it looks. All else that is settled stays: this is the row, not a start.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import Any

from runtime.server import architectures
from runtime.server.asked import Asked, changed
from runtime.server.checks import ROWS, check_refusals
from runtime.server.checks.row import Refusal
from runtime.server.choices import Choices
from runtime.server.errors import ConfigError
from runtime.server.flags import flags_of, parse
from runtime.server.gpus import GPUS, find_gpu
from runtime.server.releases import RELEASES, release_named
from runtime.server.resolve import STEPS
from tests.book import words
from tests.book.cases import checkpoint_of
from tests.book.rows import Row
from tests.oracle.commands import Command
from tests.oracle.record import refusals

_EACH = 2  # commands of a row
_PARTS = 12
_TWOS = 12


class Otherwise:
    """`Choices` with some of its values others, which notes what is read of it."""

    def __init__(self, c: Choices, **others: Any) -> None:
        self._c, self._others, self.seen = c, others, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        value = self._others[name] if name in self._others else getattr(self._c, name)
        self.seen[name] = value
        return value


def settled(command: Command) -> Choices | None:
    """As the checks find it; None where it ends before."""
    given = parse(flags_of(command.release), command.argv).given
    draft = given.get("speculative_draft_model_path")
    try:
        c = Choices(
            changed(Asked(), given),
            checkpoint_of(command.model),
            checkpoint_of(draft.removeprefix("models/")) if draft else None,
            find_gpu(command.gpu),
            release_named(command.release).release,
            {},
        )
        for step in STEPS[: STEPS.index(check_refusals)]:
            step(c)
    except ConfigError:
        return None
    return c


@cache
def commands() -> tuple[tuple[str, Command], ...]:
    """The first few that each refusal's words begin with."""
    found: dict[str, list[Command]] = defaultdict(list)
    for command, refused in refusals():
        if refused is not None and len(found[_about(refused)]) < _EACH:
            found[_about(refused)].append(command)
    return tuple((about, command) for about, commands in found.items() for command in commands)


def _about(refused: str) -> str:
    return " ".join(refused.split("refuses this: ")[-1].split()[:8])


def conditions(part: int) -> Iterator[Row]:
    for number, (_, command) in enumerate(commands()[part::_PARTS]):
        c = settled(command)
        if c is None:
            continue
        for count, row in enumerate(holding(c)):
            name = f"{number} {count} {row.said}: {command.release} {command.gpu} {' '.join(command.argv)}"
            yield name, dict(looked_at(row, c))


def holding(c: Choices) -> list[Refusal]:
    """The first few that refuse it."""
    standing = (row for row in ROWS if row.stands_in(c.release))
    return [*islice((row for row in standing if holds(row, Otherwise(c)) is True), 3)]


def looked_at(row: Refusal, c: Choices) -> Iterator[tuple[str, list[str]]]:
    """Of each thing the values with which the row still refuses."""
    looking = Otherwise(c)
    holds(row, looking)
    for name, value in looking.seen.items():
        told = {shown: holds(row, Otherwise(c, **{name: other})) for shown, other in others(c, name, value)}
        yield name, [shown if held is True else f"{shown}: {held}" for shown, held in told.items() if held]
    yield "two at a time", [*_pairs(row, c, looking.seen)]


def _pairs(row: Refusal, c: Choices, seen: dict[str, Any]) -> Iterator[str]:
    """By chance, where a row looks at more than one."""
    chance = random.Random(row.said)
    known = {name: [*others(c, name, value)] for name, value in seen.items() if name != "model"}
    names = [name for name, others in known.items() if others]
    for _ in range(_TWOS if len(names) > 1 else 0):
        pair = {name: chance.choice(known[name]) for name in chance.sample(names, 2)}
        if holds(row, Otherwise(c, **{name: value for name, (_, value) in pair.items()})):
            yield ", ".join(f"{name} {shown}" for name, (shown, _) in pair.items())


def holds(row: Refusal, c: Any) -> bool | str:
    try:
        return bool(row.when(c))
    except Exception as error:
        return type(error).__name__


def others(c: Choices, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if name == "model":
        for one in _architectures():
            yield one, replace(value, hf={**value.hf, "architectures": [one]})
        for member in sorted({*value.hf} - {"architectures"}):
            yield f"without {member}", replace(value, hf={k: v for k, v in value.hf.items() if k != member})
    elif name == "release":
        yield from ((row.version, row) for row in RELEASES)
    elif name == "gpu":
        yield from ((gpu.name, gpu) for gpu in (GPUS[0], GPUS[1], *GPUS[4:7], GPUS[8], GPUS[10], GPUS[-1]))
    elif name not in ("asked", "draft_model", "environ", "decode", "prefill"):
        flag = flags_of(c.release.version).by_field.get(name)
        choices = flag.choices or () if flag else ()
        values = [None, *dict.fromkeys((*choices, *words.of_arguments().get(name, ()))), *_beside(value)]
        yield from ((repr(one), one) for one in values)


def _beside(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value - 1, value + 1, 2 * value, 0, 1, 2]
    parts = [*value] if isinstance(value, (list, tuple)) else []
    ends = [[*parts[:-1], "-1"], [*parts[:-1], "0"], [*parts, "1"], parts[:-1]] if parts else []
    return [True, 0, 1, "x", (), ("x",), {}, {"image": {}}, {"image": 1}, *ends]


@cache
def _architectures() -> tuple[str, ...]:
    sets = (value for value in vars(architectures).values() if isinstance(value, (frozenset, tuple)))
    made_up = (command.model.rpartition("/")[2] for command, _ in refusals() if "made-up" in command.model)
    return tuple(sorted({one for names in sets for one in names if isinstance(one, str)} | {*made_up}))


CONDITIONS_OF = {f"conditions {part}": partial(conditions, part) for part in range(_PARTS)}
