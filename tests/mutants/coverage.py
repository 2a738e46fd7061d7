"""Which functions and lines of the rules each unit runs, kept while neither they nor the unit change."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.mutants.patch import in_order, load_again
from tests.mutants.places import TREE
from tests.mutants.units import Unit

Calls = dict[str, frozenset[tuple[str, int]]]  # by file, as places.py names a function
Lines = dict[str, int]  # by file, a bit each
KEPT = Path(tempfile.gettempdir()) / f"sgl-tune-mutants-{os.getuid()}.pickle"


@dataclass(frozen=True)
class Run:
    held: bool
    seconds: float
    calls: Calls
    lines: Lines


def runs_of(units: Sequence[Unit], rules: Sequence[Path], jobs: int) -> dict[str, Run]:
    """By name of a unit; in forks, so that nothing is left behind."""
    states = {_name(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in rules}
    kept = _read(states)
    known = {one.name: kept[one.name][1] for one in units if kept.get(one.name, ("",))[0] == one.stamp}
    missing = [one for one in units if one.name not in known]
    parts = [_in_fork(_measure(missing[number::jobs], rules)) for number in range(jobs)]
    for part in parts:
        known |= part()
    if missing:
        stamps = {one.name: one.stamp for one in units}
        kept |= {name: (stamps[name], run) for name, run in known.items()}
        KEPT.write_bytes(pickle.dumps((states, kept)))
    return known


def calls_at_import(rules: Iterable[Path]) -> Calls:
    """What is done by the time of a trial: it takes a module that is loaded again."""

    def everything() -> bool:
        for one in in_order():
            if not one.__name__.startswith("tests."):
                load_again(one)
        return True

    files = {str(path) for path in rules}
    found: Calls = _in_fork(lambda: _watched(everything, files).calls)()
    return found


def _read(states: dict[str, str]) -> dict[str, tuple[str, Run]]:
    """Of the units that ran no file that has changed since."""
    if not KEPT.is_file():
        return {}
    then, kept = pickle.loads(KEPT.read_bytes())
    changed = {file for file, state in then.items() if states.get(file) != state}
    return {name: pair for name, pair in kept.items() if not changed & pair[1].calls.keys()}


def _measure(units: Sequence[Unit], rules: Iterable[Path]) -> Callable[[], dict[str, Run]]:
    files = {str(path) for path in rules}
    return lambda: {one.name: _watched(one.holds, files) for one in units}


def _in_fork(work: Callable[[], Any]) -> Callable[[], Any]:
    """Starts it, and answers how to wait for what it found."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        with os.fdopen(writing, "wb") as file:
            pickle.dump(work(), file)
        os._exit(0)
    os.close(writing)

    def found() -> Any:
        with os.fdopen(reading, "rb") as file:
            told = pickle.load(file)
        os.waitpid(pid, 0)
        return told

    return found


def _watched(holds: Callable[[], bool], files: set[str]) -> Run:
    left: dict[CodeType, set[int]] = {}  # lines that were not seen yet

    def call(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in files or code.co_name == "<module>":
            return None
        if code not in left:
            left[code] = {*_lines(code)}
        return line if left[code] else None

    def line(frame: FrameType, event: str, _: Any) -> Any:
        missing = left[frame.f_code]
        missing.discard(frame.f_lineno)
        return line if missing else None

    began = time.monotonic()
    sys.settrace(call)
    try:
        held = holds()
    finally:
        sys.settrace(None)
    seconds = time.monotonic() - began
    calls: dict[str, set[tuple[str, int]]] = defaultdict(set)
    lines: Lines = defaultdict(int)
    for code, missing in left.items():
        name = _name(code.co_filename)
        calls[name].add(_function(code.co_name, code.co_firstlineno))
        lines[name] |= sum(1 << one for one in _lines(code) - missing)
    return Run(held, seconds, {file: frozenset(found) for file, found in calls.items()}, dict(lines))


@cache
def _lines(code: CodeType) -> frozenset[int]:
    return frozenset(line for _, _, line in code.co_lines() if line is not None)


_KNOWN: dict[Any, Any] = {}


def _function(*function: Any) -> Any:
    """The same tuple for the same function: a pickle names it once."""
    return _KNOWN.setdefault(function, function)


def _name(path: Path | str) -> str:
    return str(Path(path).relative_to(TREE))
