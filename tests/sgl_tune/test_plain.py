"""Whatever command line is read without typer, typer reads alike."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from sgl_tune.cli.grammar import in_typers_words
from sgl_tune.cli.pages import page_of, pages
from sgl_tune.cli.parameters import parameters_of
from sgl_tune.cli.plain import plain_call
from tests.sgl_tune.running import run

HERE = str(Path(__file__).parent)
VALUES = (
    HERE,
    __file__,
    "/no/such/path",
    "0123abcd",
    "json",
    "human",
    "7",
    "1.5",
    "-7",
    "-",
    "--",
    "-q",
    "=",
)


def plainly(name: str, words: Sequence[str]) -> dict[str, Any] | None:
    """Its arguments, with those of a record of options one by one."""
    call: Any = plain_call([*name.split(), *words])
    if call is None:
        return None
    found = {}
    for argument, value in call.keywords.items():
        of_record = (
            {f.name: getattr(value, f.name) for f in dataclasses.fields(value)} if _is_record(value) else {}
        )
        found |= of_record or {argument: value}
    return found


def _is_record(value: Any) -> bool:
    return dataclasses.is_dataclass(value)


seen: dict[str, Any] = {}


@cache
def typers(name: str) -> Any:
    told: Callable[..., Any] = in_typers_words(page_of(name))

    @functools.wraps(told)
    def spy(**arguments: Any) -> None:
        seen.update(arguments)

    del spy.__wrapped__  # type: ignore[attr-defined]
    spy.__signature__ = told.__signature__  # type: ignore[attr-defined]
    page = typer.Typer(add_completion=False)
    page.command(name)(spy)
    return typer.main.get_command(page)


def by_typer(name: str, words: Sequence[str]) -> dict[str, Any]:
    seen.clear()
    typers(name).main(list(words), prog_name="sgl-tune", standalone_mode=False)
    return dict(seen)


@st.composite
def lines(draw: Any, name: str) -> list[str]:
    """Words of all kinds, in pairs that may well be an option and its value."""
    names = sorted(n for one in parameters_of(page_of(name)) if one.declared for n in one.declared.names)
    name_of = st.sampled_from([*names, "--no-such", "--tp", "-h"])
    words = (
        st.tuples(name_of, st.sampled_from(VALUES)) | st.tuples(name_of) | st.tuples(st.sampled_from(VALUES))
    )
    return [word for pair in draw(st.lists(words, max_size=4)) for word in pair]


@pytest.mark.parametrize("name", pages())
def test_what_is_read_plainly_is_read_as_typer_does(name: str) -> None:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(lines(name))
    def check(words: list[str]) -> None:
        plain = plainly(name, words)
        assert plain is None or repr(plain) == repr({key: by_typer(name, words)[key] for key in plain})

    check()


@pytest.mark.parametrize(
    "line",
    [
        "inspect",
        f"inspect --cache-dir {HERE} --format json --filter a=b --filter c=d",
        f"inspect {HERE} --entries -q",
        f"verify {HERE} --strict --format github",
        f"diff {HERE} 0123abcd --ignore-noise",
        "env --format json",
    ],
)
def test_usual_lines_are_plain(line: str) -> None:
    name, *words = line.split()
    plain = plainly(name, words)
    assert plain and repr(plain) == repr({key: by_typer(name, words)[key] for key in plain})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "inspect --help",
        "inspect --sort",
        "inspect --limit 3",
        "inspect --cache-dir=/tmp",
        "inspect -q -q",
        "diff a",
        "diff a b c",
        "verify --tp 8",
        "verify -- sglang serve M",
        "no-such-command",
    ],
)
def test_what_takes_more_than_a_look_is_typers(line: str) -> None:
    assert plain_call(line.split()) is None


def test_a_shell_that_completes_asks_typer() -> None:
    asked = {"_SGL_TUNE_COMPLETE": "complete_bash", "COMP_WORDS": "sgl-tune inspect --so", "COMP_CWORD": "2"}
    assert "--sort" in run("inspect", **asked).out
