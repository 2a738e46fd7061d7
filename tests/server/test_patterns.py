"""Expressions over module names: as `re` matches them, and in no time whatever they are."""

from __future__ import annotations

import random
import re
import time

import pytest

from runtime.server.errors import Unsupported
from runtime.server.patterns import Patterns

_PARTS = (
    "self_attn.q_proj",
    "mlp.gate",
    "mlp.gate_up_proj",
    "mlp.experts.0.up_proj",
    "mlp.shared_experts.down_proj",
)
NAMES = [f"model.layers.{layer}.{part}" for layer in (0, 2, 13, 61) for part in _PARTS] + ["lm_head", ""]


@pytest.mark.parametrize(
    "expression",
    [
        *(".*lm_head", ".*self_attn.*", r".*mlp\.(gate|up|gate_up|down)_proj.*", ".*mlp.gate$", "", "x|"),
        *(r"^model\.layers\.[0-3]\..*", r".*\.(?:1[0-5])\..*", r"model.layers.\d{1,2}.mlp.*", ".*[^.]gate"),
        *(
            "model.*?gate_up",
            r"(model|lm_head)(\..*)?$",
            r"model\.layers\.(6[01])\.",
            r".*\.experts\.\d+\.up",
        ),
    ],
)
def test_published_expressions_match_as_re_does(expression: str) -> None:
    found = Patterns([expression])
    assert [found.first(name) for name in NAMES] == [
        0 if re.match(expression, name) else None for name in NAMES
    ]


def _drawn(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 3 or kind < 0.35:
        return rng.choice(["a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", "c", "1", "[a-c1]"])
    if kind < 0.6:
        return _drawn(rng, depth + 1) + _drawn(rng, depth + 1)
    if kind < 0.75:
        return f"({_drawn(rng, depth + 1)}|{_drawn(rng, depth + 1)})"
    return f"(?:{_drawn(rng, depth + 1)}){rng.choice(['*', '+', '?', '{1,2}', '{2}', '*?'])}"


def test_random_expressions_match_as_re_does() -> None:
    rng = random.Random(5)
    for _ in range(300):
        expressions = [_drawn(rng), _drawn(rng) + "$"]
        found = Patterns(expressions)
        for _ in range(5):
            name = "".join(rng.choice("abc.1") for _ in range(rng.randrange(8)))
            told = [number for number, one in enumerate(expressions) if re.match(one, name)]
            assert found.first(name) == min(told, default=None), (expressions, name)


def test_an_expression_that_re_never_ends_on_takes_no_time() -> None:
    started = time.perf_counter()
    found = Patterns(["(a+)+b", "(.*a){20}b", "((a*)*)*c"])
    assert found.first("a" * 2000) is None
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "expression", ["(?!x)a", r"(a)\1", "(", "[a", "a{1000}", "*a", "(?P<n>a)", "a**", "\\"]
)
def test_what_is_not_followed_is_refused_by_name(expression: str) -> None:
    with pytest.raises(Unsupported, match="is not followed here"):
        Patterns([expression])


def test_expressions_too_many_to_follow_are_refused() -> None:
    with pytest.raises(Unsupported, match="too many or too long"):
        Patterns(["(a{100}){100}"])
