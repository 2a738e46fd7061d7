"""Makes small wrong changes in the rules of a server, and tells which no test notices.

python -m tests.mutants --seed 1 --count 100 [--only runtime/server/moe.py] [--jobs 1]
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.changes import KINDS, Change, changes
from tests.mutants.coverage import calls_at_import, loaded_now, runs_of
from tests.mutants.patch import caches, functions
from tests.mutants.places import TREE
from tests.mutants.trial import PATIENCE, SURVIVES, Mutant, Trials
from tests.mutants.units import TESTS, commands, items

RULES = ("runtime/server/**/*.py", "sgl_tune/keys/*.py")
LEFT_OUT = re.compile(r"class_table|__init__|v\d+_\d+_\d+")  # what a tool writes, and what only exports


def rules() -> list[Path]:
    found = sorted(path for pattern in RULES for path in TREE.glob(pattern))
    return [path for path in found if not LEFT_OUT.fullmatch(path.stem)]


def chosen(seed: int, count: int, only: Sequence[str] = ()) -> list[Mutant]:
    """The kinds in turn, so that the many names do not crowd out the few comparisons."""
    chance = random.Random(f"mutants {seed}")
    sites: dict[str, list[tuple[str, Change]]] = defaultdict(list)
    for path in rules():
        file = str(path.relative_to(TREE))
        if not only or file in only:
            for one in changes(path.read_text()):
                sites[one.kind].append((file, one))
    for kind in KINDS:
        chance.shuffle(sites[kind])
    picked: list[tuple[str, Change]] = []
    while len(picked) < count and any(sites.values()):
        picked += [sites[kind].pop() for kind in KINDS if sites[kind]]
    return [Mutant(i, *pair) for i, pair in enumerate(picked[:count])]


class _Loop:
    """In the place of pytest's own: it has collected the items, and all is loaded."""

    def __init__(self, mutants: Sequence[Mutant], asked: argparse.Namespace) -> None:
        self.mutants, self.seed, self.jobs = mutants, asked.seed, asked.jobs
        self.patience = asked.patience

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        units = [*commands(), *items(session)]
        began = time.monotonic()
        files = rules()
        runs = runs_of(units, files, self.jobs)
        loaded_now(runs.values())
        trials = Trials(units, runs, calls_at_import(files), self.patience)
        functions(), caches()
        gc.freeze()
        said = f"{len(units)} units, {len(units) - len(trials.units)} of them left out"
        print(f"{said}; what they call in {time.monotonic() - began:.0f} s", flush=True)
        survivors: list[Mutant] = []
        by_file: dict[str, Counter[bool]] = defaultdict(Counter)
        for mutant, fate in trials.fates(self.mutants, self.jobs):
            print(f"{mutant.number:4} {fate:8.100} {mutant}", flush=True)
            by_file[mutant.file][fate == SURVIVES] += 1
            survivors += [mutant] if fate == SURVIVES else []
        for file, fates in sorted(by_file.items()):
            print(f"{file}: {fates.total()} mutants, {fates[True]} survive")
        count = len(self.mutants)
        print(f"\nseed {self.seed}: {count} mutants, {count - len(survivors)} noticed")
        print(*(f"  {one.number}: {one}" for one in survivors), sep="\n", flush=True)
        return True


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0]
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--jobs", type=int, default=1, help="mutants tried at a time")
    options.add_argument("--only", nargs="+", default=(), help="of these files, as runtime/server/moe.py")
    options.add_argument("--patience", type=float, default=PATIENCE, help="CPU seconds that one is tried for")
    options.add_argument("--numbers", help="of the chosen ones only these, as 3,17: to try survivors again")
    asked = options.parse_args()
    mutants = chosen(asked.seed, asked.count, asked.only)
    if asked.numbers:
        numbers = {int(number) for number in asked.numbers.split(",")}
        mutants = [one for one in mutants if one.number in numbers]
    quiet = ["-s", "-o", "addopts=--import-mode=importlib"]
    quiet += [word for name in ("cacheprovider", "terminal") for word in ("-p", f"no:{name}")]
    return pytest.main([*quiet, *TESTS], plugins=[_Loop(mutants, asked)])


if __name__ == "__main__":
    sys.exit(main())
