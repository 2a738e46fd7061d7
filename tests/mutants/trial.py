"""One mutant's trial in a fork of a process that has all tests loaded: which unit notices it first?"""

from __future__ import annotations

import os
import random
import re
import resource
import select
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import merge
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import NoReturn

from tests.mutants.again import loaded_again
from tests.mutants.changes import Change
from tests.mutants.coverage import SECONDS, Run
from tests.mutants.patch import forget, importers, replaced
from tests.mutants.places import (
    TREE,
    Function,
    Places,
    function_at,
    lines_around,
    lines_of,
    places,
    words_at,
)
from tests.mutants.probes import Calls
from tests.mutants.units import Unit

CPU_SECONDS, WALL_SECONDS = 60, 900  # of one unit, of a whole trial
PATIENCE = 60.0  # CPU seconds until a mutant is taken for one that survives: the quick units come first
_QUICK = 0.1  # seconds of a unit
_KEEPS = re.compile(r"@(lru_)?cache|@cached_property")
SURVIVES, TIME = "survives", "time"


@dataclass(frozen=True)
class Mutant:
    number: int
    file: str
    change: Change

    def __str__(self) -> str:
        one = self.change
        old, new = (" ".join(text.split())[:80] for text in (one.old, one.new))
        return f"{self.file}:{one.line}: {one.kind}: {old!r} -> {new!r}"


@dataclass
class Trials:
    """`noticed` are those that noticed another mutant of the file: they are tried first. `sound` says which
    units hold when a module is loaded again though nothing in it has changed."""

    units: Sequence[Unit]
    runs: dict[str, Run]
    imported: Calls
    patience: float = PATIENCE
    noticed: Counter[tuple[str, str]] = field(default_factory=Counter)
    sound: dict[tuple[str, str], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seconds = {name: run.seconds for name, run in self.runs.items() if run.held and run.seconds < SECONDS}
        self.units = sorted((u for u in self.units if u.name in seconds), key=lambda u: seconds[u.name])
        self.by_name = {one.name: one for one in self.units}
        self._called: dict[str, dict[Function, set[str]]] = {}

    def fates(self, mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
        """Each with the unit that noticed it, or `survives`."""
        waiting, running = list(mutants), {}
        while waiting or running:
            while waiting and len(running) < jobs:
                trial = _Trial(self, waiting.pop(0))
                running[trial.pipe] = trial
            ready, _, _ = select.select(list(running), [], [], 5)
            for pipe, trial in list(running.items()):
                if pipe not in ready and not trial.is_late:
                    continue
                fate = trial.fate()
                if trial.again and fate in self.by_name and not self._is_sound(trial.mutant.file, fate):
                    trial.goes_on()
                    continue
                del running[pipe]
                trial.end()
                self.noticed[trial.mutant.file, fate] += 1
                yield trial.mutant, fate

    def order(self, mutant: Mutant) -> tuple[list[Unit], bool]:
        """Also whether the module has to be loaded again. Of a change in a table all who read the module."""
        file, stem = mutant.file, Path(mutant.file).stem
        function = function_at(*_source(file), mutant.change.start)
        again = function is None or function in self.imported.get(file, ())
        callers = self._callers(file)
        names = callers.get(function, set())
        mask = sum(1 << line for line in lines_of(_source(file)[0], mutant.change.start))
        reaching = {name for name in names if self.runs[name].lines.get(file, 0) & mask}
        if again or _KEEPS.search(_source(file)[0]):  # what is kept is called once, whoever asks
            names = set().union(*callers.values()) or {*self.by_name}
            names |= {one.name for one in self.units if one.file in importers(file)}
        elif reaching:
            names = reaching
        found = [one for one in self.units if one.name in names and self.sound.get((file, one.name), True)]
        words = words_at(_source(file)[0], mutant.change.start)
        turns, ranks = Counter[str](), dict[str, tuple[int, int]]()
        for one in found:  # the quickest of each test, the next of each, and so on
            turns[one.group] += 1
            ranks[one.name] = turns[one.group], turns[one.group] * len(self.runs[one.name].calls)

        seldom = self._seldom(found, file, mutant.change.start, words)

        def likely(one: Unit, rank: int) -> tuple[int, bool, int, int, bool]:
            """First those of any test, or those that run few files."""
            return (
                -self.noticed[file, one.name],
                one.name not in reaching,
                -sum(word in one.name for word in words),
                ranks[one.name][rank],
                f"test_{stem}." not in one.name,
            )

        orders = [sorted(found, key=lambda one: likely(one, rank)) for rank in (0, 1)]
        orders.append(sorted(found, key=lambda one: not again or one.file not in importers(file)))
        orders.append(sorted(found, key=lambda one: (seldom[one.name], likely(one, 0))))
        by_chance = random.Random(str(mutant)).sample(found, len(found))  # the quickest are much alike
        orders.append(sorted(by_chance, key=lambda one: self.runs[one.name].seconds > _QUICK))
        return self._in_turns(orders), again

    def _in_turns(self, orders: Sequence[Sequence[Unit]]) -> list[Unit]:
        """Each order has as much of the time as the others, so that one slow unit holds up no quick ones."""
        timed = [
            [*zip(accumulate(self.runs[one.name].seconds for one in order), order, strict=True)]
            for order in orders
        ]
        return [*{one.name: one for _, one in merge(*timed, key=itemgetter(0))}.values()]

    def _seldom(self, units: Sequence[Unit], file: str, start: int, words: set[str]) -> dict[str, int]:
        """How many run the line that fewest run: of the function, or of those that read what a table says."""
        lines = [(file, line) for line in lines_around(_source(file)[0], start)]
        lines = lines or [place for word in words for place in _readers().get(word, ())]
        runners = {
            (at, line): {one.name for one in units if self.runs[one.name].lines.get(at, 0) >> line & 1}
            for at, line in lines
        }
        found = {one.name: len(units) for one in units}
        for names in sorted(runners.values(), key=len, reverse=True):
            found |= dict.fromkeys(names, len(names))
        return found

    def _callers(self, file: str) -> dict[Function, set[str]]:
        if file not in self._called:
            called: dict[Function, set[str]] = defaultdict(set)
            for one in self.units:
                for function in self.runs[one.name].calls.get(file, ()):
                    called[function].add(one.name)
            self._called[file] = called
        return self._called[file]

    def _is_sound(self, file: str, name: str) -> bool:
        if (file, name) not in self.sound:
            source, _ = _source(file)
            alone = _Fork(lambda: _noticing([self.by_name[name]], file, source, True, PATIENCE))
            self.sound[file, name] = alone.told() == SURVIVES
            alone.end()
        return self.sound[file, name]


@cache
def _readers() -> dict[str, list[tuple[str, int]]]:
    """Where each attribute is read: file and line."""
    found = defaultdict(list)
    for path in sorted(TREE.glob("runtime/server/**/*.py")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for word in re.findall(r"\.(\w{4,})", line):
                found[word].append((str(path.relative_to(TREE)), number))
    return found


@cache
def _source(file: str) -> tuple[str, Places]:
    source = (TREE / file).read_text()
    return source, places(source)


class _Trial:
    def __init__(self, trials: Trials, mutant: Mutant) -> None:
        units, self.again = trials.order(mutant)
        self.mutant = mutant
        source = mutant.change.apply(_source(mutant.file)[0])
        self._fork = _Fork(lambda: _noticing(units, mutant.file, source, self.again, trials.patience))
        self.pipe = self._fork.pipe
        self._began = time.monotonic()

    @property
    def is_late(self) -> bool:
        return time.monotonic() - self._began > WALL_SECONDS

    def fate(self) -> str:
        return TIME if self.is_late else self._fork.told()

    def goes_on(self) -> None:
        self._fork.goes_on()

    def end(self) -> None:
        self._fork.end()


def _noticing(units: Sequence[Unit], file: str, source: str, again: bool, patience: float) -> Iterator[str]:
    """Each that notices, as long as one more is asked for."""
    try:
        if again or not replaced(file, source):
            loaded_again(file, source)
    except Exception as error:
        yield f"not loaded: {type(error).__name__}"
    for one in units:
        used = time.process_time()
        if used > patience:
            break
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CPU_SECONDS, resource.RLIM_INFINITY))
        if not one.holds():
            yield one.name
    yield SURVIVES


class _Fork:
    """A process that tells what it finds, a line each, and goes on when it is asked to."""

    def __init__(self, work: Callable[[], Iterator[str]]) -> None:
        here, there = socket.socketpair()
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            here.close()
            _work(work, there)
        there.close()
        self.pipe = here

    def told(self) -> str:
        """Nothing, where it ran out of its time."""
        return self.pipe.recv(4096).decode() or TIME

    def goes_on(self) -> None:
        self.pipe.send(b"on")

    def end(self) -> None:
        self.pipe.close()
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def _work(work: Callable[[], Iterator[str]], pipe: socket.socket) -> NoReturn:
    os.setsid()
    forget()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        for told in work():
            pipe.send(told.encode()[:4096])
            if not pipe.recv(2):
                break
    except BaseException as error:
        pipe.send(f"{type(error).__name__}: {error}".encode()[:300])
    os._exit(0)
