"""Which functions and lines of the rules each unit runs, kept while neither they nor the unit change."""

from __future__ import annotations

import hashlib
import importlib
import os
import pickle
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from tests.mutants.patch import in_order, load_again
from tests.mutants.places import TREE
from tests.mutants.probes import Calls, Lines, Probes
from tests.mutants.units import Unit

SECONDS, WALL_SECONDS = 12.0, 90.0  # of CPU and in all, of a unit: what takes longer is left out
KEPT = Path(tempfile.gettempdir()) / f"sgl-tune-mutants-{os.getuid()}.pickle"


@dataclass(frozen=True)
class Run:
    held: bool
    seconds: float
    calls: Calls
    lines: Lines
    imports: tuple[str, ...]  # what nothing before it had loaded


def runs_of(units: Sequence[Unit], rules: Sequence[Path], jobs: int) -> dict[str, Run]:
    """By name of a unit; in forks, so that nothing is left behind."""
    states = {_name(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (Path(__file__), *rules)}
    kept = _read(states)
    known = {one.name: kept[one.name][1] for one in units if kept.get(one.name, ("",))[0] == one.stamp}
    missing = [one for one in units if one.name not in known]
    parts = [measured(missing[number::jobs], rules) for number in range(jobs)]
    for part in parts:
        known |= part()
    if missing:
        stamps = {one.name: one.stamp for one in units}
        kept |= {name: (stamps[name], run) for name, run in known.items()}
        KEPT.write_bytes(pickle.dumps((states, kept)))
    return known


def loaded_now(runs: Iterable[Run]) -> None:
    """What tests import when they run, once for all trials."""
    for name in {name: None for one in runs for name in one.imports}:
        with suppress(Exception):
            importlib.import_module(name)


def calls_at_import(rules: Iterable[Path]) -> Calls:
    """What is done by the time of a trial: it takes a module that is loaded again."""
    files = {str(path) for path in rules}
    seen: set[CodeType] = set()

    def watched() -> Calls:
        sys.setprofile(lambda frame, event, _: seen.add(frame.f_code))
        for one in in_order():
            if not one.__name__.startswith("tests."):
                with suppress(Exception):  # torch takes an operator once
                    load_again(one)
        sys.setprofile(None)
        calls: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for code in seen:
            if code.co_filename in files and code.co_name != "<module>":
                calls[_name(code.co_filename)].add((code.co_name, code.co_firstlineno))
        return {file: frozenset(found) for file, found in calls.items()}

    found: Calls = _in_fork(watched)()
    return found


def _read(states: dict[str, str]) -> dict[str, tuple[str, Run]]:
    """Of the units that ran no file that has changed since."""
    if not KEPT.is_file():
        return {}
    then, kept = pickle.loads(KEPT.read_bytes())
    changed = {file for file, _ in states.items() ^ then.items()}
    if _name(__file__) in changed:
        return {}
    return {name: pair for name, pair in kept.items() if not changed & pair[1].calls.keys()}


def measured(units: Sequence[Unit], rules: Iterable[Path]) -> Callable[[], dict[str, Run]]:
    def runs() -> dict[str, Run]:
        for what in (signal.SIGALRM, signal.SIGPROF):
            signal.signal(what, _late)
        probes, found, late = Probes(map(_name, rules)), dict[str, Run](), set[str]()
        for one in units:
            known = len(sys.modules)
            held, seconds = (False, SECONDS) if one.group in late else _timed(one)
            if seconds >= SECONDS:
                late.add(one.group)
            found[one.name] = Run(held, seconds, *probes.told(), (*sys.modules,)[known:])
        return found

    return _in_fork(runs)


def _late(*_: object) -> NoReturn:
    raise TimeoutError


def _timed(unit: Unit) -> tuple[bool, float]:
    """One that takes too long is stopped, and its test's other cases are not begun."""
    began, held = time.process_time(), False
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
    with suppress(TimeoutError):
        held = unit.holds()
    left = signal.setitimer(signal.ITIMER_REAL, 0)[0]
    signal.setitimer(signal.ITIMER_PROF, 0)
    return held, time.process_time() - began if left else SECONDS


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


def _name(path: Path | str) -> str:
    return str(Path(path).relative_to(TREE))
