"""The wrong changes that are made, and those that are not."""

from __future__ import annotations

import ast
import random

import pytest

from tests.mutants.__main__ import chosen, rules
from tests.mutants.changes import KINDS, changes


def _made(source: str) -> list[str]:
    return [one.apply(source) for one in changes(source)]


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("a < b", ["a <= b"]),
        ("a not in b", ["a in b"]),
        ("a is  not b", ["a is b"]),
        ("a < b == c", ["a <= b == c", "a < b != c"]),
        (
            "a and (b or c)",
            [
                *("a or (b or c)", "a and (b and c)", "True and (b or c)", "a and (True)"),
                *("a and (False or c)", "a and (b or False)"),
            ],
        ),
        ("x = a + b", ["x = a - b"]),
        ("x += a", ["x -= a"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = a if b else c", ["x = a", "x = c", "x = a if not b else c"]),
        ("if a:\n    b = c", ["if not a:\n    b = c"]),
        ("x = f(a, b, c=d)", ["x = f(b, a, c=d)", "x = f(a, b, )"]),
        ("x = {a: b, **c}", ["x = { **c}", "x = {a: b, }"]),
        ("f(a)", ["pass"]),
        ("x = ''", ['x = "_"']),
        ("x = 8", ["x = 7", "x = 9"]),
        ("x = 0.95", ["x = 0.94", "x = 0.96"]),
        ("x = f(on=True)", ["x = f(on=False)", "x = f()"]),
        ("x = not a", ["x =  a"]),
        ("x = 'fa3'", ['x = "fa3_"']),
        ("x = (a, b)", ["x = (b,)", "x = (a, )"]),
        ("if a:\n    return b", ["if a:\n    pass", "if not a:\n    return b"]),
        (
            "if a:\n    raise ConfigError('name', 8)",
            ["if a:\n    pass", "if not a:\n    raise ConfigError('name', 8)"],
        ),
        (
            "x = 'größer', a < b",
            ["x = a < b,", 'x = "größer_", a < b', "x = 'größer', a <= b", "x = 'größer', "],
        ),
    ],
)
def test_a_change_is_small(source: str, made: list[str]) -> None:
    assert sorted(_made(source)) == sorted(made)


@pytest.mark.parametrize(
    "source",
    [
        '"""Module."""',
        "x: Literal['a', 'b']",
        "def f(x: tuple[int, 'A']) -> Literal['a']:\n    return g",
        "@dataclass(frozen=True)\nclass A:\n    def __repr__(self):\n        return 'a' if x < 8 else 'b'",
        "x = c.settle('why', page)",
        "x = c.disable(c.prefill, 'why')",
        "x = f(note='said')",
        "x = f'{a} of 8'",
        "x = 'a sentence for people'",
        "assert x is not None",
        "from a import b",
    ],
)
def test_what_no_answer_depends_on_stays(source: str) -> None:
    assert _made(source) == []


def test_a_changed_rule_is_still_python() -> None:
    chance = random.Random(1)
    for path in rules():
        source = path.read_text()
        found = changes(source)
        for one in chance.sample(found, min(3, len(found))):
            assert one.apply(source) != source
            ast.parse(one.apply(source))


def test_a_seed_draws_the_same_of_every_kind() -> None:
    drawn = chosen(1, 2 * len(KINDS))
    assert drawn == chosen(1, 2 * len(KINDS)) != chosen(2, 2 * len(KINDS))
    assert {one.change.kind for one in drawn} == set(KINDS)
