"""Records from JSON: what a type does not allow is refused by the member's name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from runtime.record.checked import WrongMember, from_plain, to_plain


@dataclass(frozen=True)
class Inner:
    name: str
    times: int = 1


@dataclass(frozen=True)
class Outer:
    share: float
    inner: tuple[Inner, ...] = ()
    limit: int | None = None
    texts: Mapping[str, str] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    width: Literal[1, 2] = 1
    side: Literal["left", "right"] = "left"


@pytest.mark.parametrize("told", [{"width": 2}, {"side": "right"}, {"width": 1, "side": "left"}])
def test_a_choice_is_one_of_its_own(told: dict[str, Any]) -> None:
    assert from_plain(Choice, told, "a choice") == Choice(**told)


@pytest.mark.parametrize("told", [{"width": 3}, {"width": True}, {"width": "1"}, {"side": "up"}, {"side": 1}])
def test_a_choice_of_others_is_refused(told: dict[str, Any]) -> None:
    (name,) = told
    with pytest.raises(WrongMember, match=f"a choice.{name} is"):
        from_plain(Choice, told, "a choice")


@dataclass(frozen=True)
class Whole:
    name: str
    width: int
    times: int = 1


@dataclass(frozen=True)
class Either:
    one: Whole | Inner


@pytest.mark.parametrize("one", [Inner("a"), Inner("a", 2), Whole("a", 3), Whole("a", 3, 4)])
def test_of_two_records_it_is_the_one_that_asks_for_no_more(one: Inner | Whole) -> None:
    assert from_plain(Either, to_plain(Either(one)), "it") == Either(one)


def test_what_is_written_is_read_back() -> None:
    outer = Outer(0.5, (Inner("a"), Inner("b", 2)), 7, {"x": "y"}, {"deep": [1, {"er": None}]})
    assert from_plain(Outer, to_plain(outer), "outer") == outer


def test_whole_numbers_are_numbers_and_members_of_other_releases_are_passed_over() -> None:
    assert from_plain(Outer, {"share": 1, "limit": None, "newer": "x"}, "outer") == Outer(1)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"share": "half"}, "outer.share is not float"),
        ({"share": True}, "outer.share"),
        ({"share": float("nan")}, "outer.share"),
        ({"limit": 1 << 61}, "outer.limit"),
        ({"limit": 1.5}, "outer.limit"),
        ({"texts": {"x": 1}}, "outer.texts.x is not str"),
        ({"texts": None}, "outer.texts"),
        ({"inner": [{"times": 2}]}, "outer.inner[0].name is missing"),
        ({"inner": "ab"}, "outer.inner"),
    ],
)
def test_a_member_that_does_not_fit_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(WrongMember) as refused:
        from_plain(Outer, {"share": 0.5, **change}, "outer")
    assert named in str(refused.value)
