"""A seeded slice of what `python -m tests.fuzz` does at length. SGL_TUNE_FUZZ sets its size."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import engine
from tests.fuzz.engine import distinct, fuzz
from tests.fuzz.parser import Parser, parser_names

_COUNT = int(os.environ.get("SGL_TUNE_FUZZ", "60"))


@pytest.mark.parametrize("name", parser_names())
def test_no_input_ends_in_any_way_but_ours(name: str) -> None:
    found = distinct(list(fuzz(name, _COUNT, seed=11)))
    assert not found, "\n".join(f"{what}: {first.said}\n{first.input}" for what, (first, *_) in found.items())


def _raise(made: int, folder: Path) -> None:
    raise KeyError(made)


def _wait(made: int, folder: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        pass


def _sleep(made: int, folder: Path) -> None:
    time.sleep(60)


def _take_memory(made: int, folder: Path) -> None:
    bytearray(600 << 20)


def _die(made: int, folder: Path) -> None:
    os._exit(7)


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (_raise, "KeyError at fuzz/test_parsers.py"),
        (_take_memory, "MemoryError at fuzz/test_parsers.py"),
        (_wait, "more than 0.5 s of the processor"),
        (_sleep, "waits for more than 1.5 s"),
        (_die, "died with status"),
    ],
)
def test_the_fuzzer_sees_each_kind_of_fault(
    read: Callable[[int, Path], None], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MOST_SECONDS", 0.5)
    monkeypatch.setattr(engine, "MOST_WAIT", 1.5)
    (found,) = fuzz("made here", 1, seed=1, parser=Parser(lambda random: 0, read))
    assert found.what.startswith(what)


def test_after_an_input_that_kills_its_worker_come_the_others() -> None:
    found = list(fuzz("made here", 4, seed=1, parser=Parser(lambda random: 0, _die)))
    assert [finding.number for finding in found] == [0, 1, 2, 3]


def test_what_a_parser_may_raise_is_no_fault() -> None:
    assert not list(fuzz("made here", 3, seed=1, parser=Parser(lambda random: 0, _raise, ours=(KeyError,))))
