"""What each function that looks at the choices answers, one thing that it looks at told otherwise at a time.

A row of the checks, a step of the resolution asks these; few commands tell their edges apart.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import runtime.server
from runtime.server.choices import Choices, Graphs
from runtime.server.graph_backends import CONFLICTS
from runtime.server.resolve import ENVIRONMENT
from tests.book import conditions
from tests.book.conditions import Otherwise, commands, settled
from tests.book.plain import plain
from tests.book.rows import Row

_EACH, _EVERY, _PARTS, _TWOS = 6, 2, 6, 24
_STEPS = {"_server", "_key_inputs", "_draft"}  # what comes of all: the deployments have it
_Helper = Callable[[Any], Any]


def _helpers() -> Iterator[tuple[str, _Helper]]:
    """Those that look at nothing else, and settle nothing."""
    package = runtime.server
    for module in sorted(one.name for one in walk_packages(package.__path__, f"{package.__name__}.")):
        for name, one in vars(import_module(module)).items():
            if inspect.isfunction(one) and one.__module__ == module and name not in _STEPS:
                told = dict(one.__annotations__)
                answers = told.pop("return", "None")
                if [*told.values()] == ["Choices"] and answers != "None":
                    yield f"{module.removeprefix('runtime.server.')}.{name}", one
    yield from CONFLICTS.items()


@cache
def _known() -> tuple[Choices, ...]:
    found = (settled(command) for _, command in commands()[::_EVERY])
    return tuple(one for one in found if one is not None)


def helpers(part: int) -> Iterator[Row]:
    for name, helper in [*_helpers()][part::_PARTS]:
        bases: dict[str, tuple[Choices, dict[str, Any]]] = {}
        for c in _known():
            looking = Otherwise(c)
            answer = _answer(helper, looking)
            bases.setdefault(f"{answer} {sorted(looking.seen)}", (c, looking.seen))
        by_most = sorted(bases.values(), key=lambda pair: -len(pair[1]))
        for number, (c, seen) in enumerate(by_most[:_EACH]):
            yield f"{name} {number}", dict(_looked_at(helper, c, seen))


def _looked_at(helper: _Helper, c: Choices, seen: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    answer = _answer(helper, c)
    yield "answers", answer
    others = {name: dict(_others(c, name, value)) for name, value in seen.items()}
    for name, values in others.items():
        now = {shown: _answer(helper, Otherwise(c, **{name: value})) for shown, value in values.items()}
        yield name, {shown: one for shown, one in now.items() if one != answer}
    chance = random.Random(str(sorted(seen)))
    names = [name for name, values in others.items() if values and name != "model"]
    for _ in range(_TWOS if len(names) > 1 else 0):
        pair = {name: chance.choice([*others[name].items()]) for name in chance.sample(names, 2)}
        now = _answer(helper, Otherwise(c, **{name: value for name, (_, value) in pair.items()}))
        if now != answer:
            yield ", ".join(f"{name} {shown}" for name, (shown, _) in pair.items()), now


def _others(c: Choices, name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield from conditions.others(c, name, value)
    if name == "environ":
        for variable in ENVIRONMENT:
            yield from ((f"{variable}={text}", {variable: text}) for text in ("1", "0", "12", "100000", "x"))
    elif name in ("decode", "prefill"):
        for backend in ("full", "disabled", "tc_piecewise"):
            for most in (None, 1, 7, 500):
                yield f"{backend} {most}", Graphs(name, backend, most)
    elif type(value) is int and value > 4:
        yield from ((repr(one), one) for one in (value // 2, 3 * value, 10**6))


def _answer(helper: _Helper, c: Any) -> Any:
    try:
        return plain(helper(c))
    except Exception as error:
        return type(error).__name__


HELPERS_OF = {f"helpers {part}": partial(helpers, part) for part in range(_PARTS)}
