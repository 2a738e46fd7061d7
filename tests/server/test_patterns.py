"""Expressions over module names: as `re` matches them, and in no time whatever they are."""

from __future__ import annotations

import random
import re
import time
from itertools import permutations, product

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


_CLASSES = [
    *(".", "a", r"\.", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\-", r"\_", "$", "a|", "-"),
    *("[abc]", "[^abc]", "[a-c]", "[^a-c]", "[a-]", "[-a]", "[]a]", "[^]a]", "[]]", "[a^]", "[.]", "[$]"),
    *(r"[\d_]", r"[^\d_]", r"[\w-]", r"[\]]", r"[a\-c]", "[0-9a-f]", "[^0-9a-f]", "[a-cx-z]", "[+*?(){}|]"),
]
_CHARACTERS = [*map(chr, range(32, 127)), "\t", "\u00e4", "\u00b2", "\u0663", ""]


@pytest.mark.parametrize("expression", _CLASSES)
def test_one_character_is_read_as_re_reads_it(expression: str) -> None:
    for ending in ("", "$"):
        found = Patterns([expression + ending])
        assert [found.first(one) for one in _CHARACTERS] == [
            0 if re.match(expression + ending, one) else None for one in _CHARACTERS
        ]


_COUNTS = [
    *(
        "a*",
        "a+",
        "a?",
        "a{0}",
        "a{1}",
        "a{3}",
        "a{0,2}",
        "a{1,3}",
        "a{2,2}",
        "a{2,}",
        "a{0,}",
        "a*?",
        "a{1,2}?",
    ),
    *(
        "(a|b)*",
        "(?:ab)+",
        "(a*b)?",
        "(a{2}){2}",
        "((a)b?)+",
        "a|bb",
        "(a|)b",
        "|a",
        "ab|a",
        "a$|b",
        "^a+",
        "^",
    ),
    *("a$b", "a$", "$a", "(a$)?b", ".{2}", "[ab]{2,3}", r"\w{3}", "(a|b|)$", "a{100}", "a{01,02}"),
]


@pytest.mark.parametrize("expression", _COUNTS)
def test_as_many_are_read_as_re_reads(expression: str) -> None:
    names = ["".join(one) for size in range(6) for one in product("ab", repeat=size)] + ["a" * 99, "a" * 101]
    for ending in ("", "$"):
        told = f"(?:{expression}){ending}" if "^" not in expression else expression + ending
        found = Patterns([told])
        assert [found.first(one) for one in names] == [0 if re.match(told, one) else None for one in names]


@pytest.mark.parametrize(
    ("followed", "refused"),
    [
        ("a{100}", "a{101}"),
        ("a{0,100}", "a{0,101}"),
        ("a{2,2}", "a{2,1}"),
        ("a{001,002}", "a{0001,002}"),
        ("a{2}", "a{,2}"),
        ("a{2,3}", "a{2,x}"),
        ("a{3}", "a{\u0663}"),
        ("a{1,3}", "a{1,\u0663}"),
        ("a{2}", "a{2"),
        ("a}", "a{"),
        ("(" * 20 + "a" + ")" * 20, "(" * 21 + "a" + ")" * 21),
        ("()" * 30, "(" * 30 + ")" * 30),
        ("(a)", "a)"),
        ("(a)", "(a"),
        ("(?:a)", "(?a)"),
        ("[a]", "[]"),
        ("[^a]", "[^]"),
        (r"\[a", "[a"),
        (r"[a\]]", r"[a\]"),
        (r"\/", r"\Z"),
        (r"\_", r"\1"),
        ("a*?", "a*??"),
        ("a+?", "a+*"),
        ("a??", "a?+"),
        ("a{2}?", "a{2}{2}"),
        ("^a", "a^"),
        ("^a|b", "a|^b"),
        ("a|b", "*|b"),
    ],
)
def test_what_is_followed_and_what_no_more(followed: str, refused: str) -> None:
    assert Patterns([followed]).first("") in (0, None)
    with pytest.raises(Unsupported, match="is not followed here"):
        Patterns([refused])


def test_an_automaton_has_its_most_states() -> None:
    """Two a letter and two around it: 100 of them by 9 are 3600, by 10 are 4000 and what they lie in."""
    assert Patterns(["(a{100}){9}"]).first("a" * 900) == 0
    with pytest.raises(Unsupported, match="too many or too long"):
        Patterns(["(a{100}){20}"])


def test_what_is_known_of_names_is_forgotten_and_found_again() -> None:
    found = Patterns([r".*\.(\w)\.(\w+)$", ".*x"])
    names = [f"m.{chr(0x4E00 + one)}.p{one}" for one in range(0, 21000, 3)]
    assert all(found.first(name) == 0 for name in names)
    assert found.first("m.ab.x") == 1 and found.first("m.ab.y") is None


def test_the_first_that_matches_is_told_however_long_the_others_are() -> None:
    assert Patterns(["abc", "ab", "a"]).first("abc") == 0
    assert Patterns(["abd", "ab", "a"]).first("abc") == 1
    assert Patterns(["x", "y", "a"]).first("abc") == 2
    assert Patterns([]).first("abc") is None


def test_of_several_that_end_at_one_letter_the_first_is_told() -> None:
    for listed in permutations(("ab", "a.", "a", ".*b", "b")):
        wanted = next(number for number, one in enumerate(listed) if re.match(one, "ab"))
        assert Patterns(listed).first("ab") == wanted


@pytest.mark.parametrize("expression", ["a*{2}", "a+{2}", "a{2}{2}", "a?{2}", "a{2}*", "a**"])
def test_a_count_of_a_count_is_none(expression: str) -> None:
    with pytest.raises(re.error):
        re.compile(expression)
    with pytest.raises(Unsupported):
        Patterns([expression])
