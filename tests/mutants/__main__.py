"""Makes small wrong changes in the rules of a server, each in a copy, and tells which no test notices.

python -m tests.mutants --seed 1 --count 100 [--only runtime/server/moe.py] [--jobs 1]
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.mutants.changes import KINDS, Change, changes
from tests.mutants.trial import copy_of, started, tests_for

TREE = Path(__file__).parents[2]
RULES = ("runtime/server/**/*.py", "sgl_tune/keys/*.py")
LEFT_OUT = re.compile(r"class_table|__init__|v\d+_\d+_\d+")  # what a tool writes, and what only exports
WALL_SECONDS = 300


@dataclass(frozen=True)
class Mutant:
    number: int
    file: str
    change: Change

    def __str__(self) -> str:
        one = self.change
        old, new = (" ".join(text.split())[:80] for text in (one.old, one.new))
        return f"{self.file}:{one.line}: {one.kind}: {old!r} -> {new!r}"


def rules() -> list[Path]:
    found = sorted(path for pattern in RULES for path in TREE.glob(pattern))
    return [path for path in found if not LEFT_OUT.fullmatch(path.stem)]


def chosen(seed: int, count: int, only: str | None = None) -> list[Mutant]:
    """The kinds in turn, so that the many names do not crowd out the few comparisons."""
    chance = random.Random(f"mutants {seed}")
    sites: dict[str, list[tuple[str, Change]]] = defaultdict(list)
    for path in rules():
        file = str(path.relative_to(TREE))
        if only in (None, file):
            for one in changes(path.read_text()):
                sites[one.kind].append((file, one))
    for kind in KINDS:
        chance.shuffle(sites[kind])
    picked: list[tuple[str, Change]] = []
    while len(picked) < count and any(sites.values()):
        picked += [sites[kind].pop() for kind in KINDS if sites[kind]]
    return [Mutant(i, *pair) for i, pair in enumerate(picked[:count])]


def tried(mutants: Sequence[Mutant], folder: Path, jobs: int) -> Iterator[tuple[Mutant, str]]:
    """Each with its fate: the test that noticed, or `survives`."""
    copies = [copy_of(TREE, folder / f"copy{i}") for i in range(jobs)]
    sources = {one.file: (copies[0] / one.file).read_text() for one in mutants}
    for copy in copies:
        _check_unchanged(copy, folder / "log", {Path(one.file).stem for one in mutants})
    waiting, running = list(mutants), {}
    while waiting or running:
        while waiting and copies:
            mutant, copy = waiting.pop(0), copies.pop()
            log = folder / f"log{mutant.number}"
            _write(copy / mutant.file, mutant.change.apply(sources[mutant.file]))
            trial = started(copy, tests_for(Path(mutant.file).stem), log)
            running[trial.sentinel] = (mutant, copy, log, trial, time.monotonic())
        wait(list(running), timeout=5)
        for key, (mutant, copy, log, trial, began) in list(running.items()):
            late = time.monotonic() - began > WALL_SECONDS
            if trial.is_alive() and not late:
                continue
            yield mutant, _fate(trial, log, late)
            _write(copy / mutant.file, sources[mutant.file])
            copies.append(copy)
            del running[key]


def _check_unchanged(copy: Path, log: Path, modules: set[str]) -> None:
    """Also leaves bytecode of all that stays as it is."""
    tests = list(dict.fromkeys(file for module in sorted(modules) for file in tests_for(module)))
    trial = started(copy, tests, log, keep_bytecode=True)
    trial.join()
    if trial.exitcode != 0:
        raise SystemExit(f"the tests fail without any change:\n{log.read_text()[-3000:]}")


def _write(path: Path, source: str) -> None:
    path.write_text(source)
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink()


def _fate(trial: BaseProcess, log: Path, late: bool) -> str:
    if late:
        trial.kill()
        trial.join()
    if late or trial.exitcode not in (0, 1, 2, 3, 4):
        return "time"
    if trial.exitcode == 0:
        return "survives"
    lines = [line for line in log.read_text().splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[-1].split(" - ")[0] if lines else "an error"


def main() -> None:
    options = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=(__doc__ or "").splitlines()[0]
    )
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--jobs", type=int, default=1, help="mutants tried at a time")
    options.add_argument("--only", help="of this file alone, as runtime/server/moe.py")
    options.add_argument("--numbers", help="of the chosen ones only these, as 3,17: to try survivors again")
    asked = options.parse_args()
    mutants = chosen(asked.seed, asked.count, asked.only)
    if asked.numbers:
        numbers = {int(number) for number in asked.numbers.split(",")}
        mutants = [one for one in mutants if one.number in numbers]
    import torch  # noqa: F401  (once, and not in every fork)

    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for mutant, fate in tried(mutants, Path(folder), asked.jobs):
            print(f"{mutant.number:4} {fate:8.60} {mutant}", flush=True)
            if fate == "survives":
                survivors.append(mutant)
    print(f"\nseed {asked.seed}: {len(mutants)} mutants, {len(mutants) - len(survivors)} noticed")
    print(*(f"  {one.number}: {one}" for one in survivors), sep="\n")


if __name__ == "__main__":
    main()
