"""Draws deployments, and keeps in the book those of them, and of its own, that run what the others do not.

python -m tests.book --seed 3 --count 2000 --keep 500
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from tests.book.answers import answer
from tests.book.cases import Answer, Case, read, write
from tests.book.draw import drawn
from tests.mutants.__main__ import rules
from tests.mutants.patch import functions
from tests.mutants.places import TREE
from tests.mutants.probes import Probes

_A_LINE, _SECONDS = 30, 0.3  # what a line counts beside a value that an answer holds; of a case, at most


@dataclass(frozen=True)
class Told:
    case: Case
    answer: Answer
    seconds: float
    lines: frozenset[tuple[str, int]]
    values: frozenset[int]


def told(cases: Sequence[Case]) -> Iterator[Told]:
    loaded = {getattr(one, "__file__", None) for one in list(sys.modules.values())}
    functions()
    probes = Probes([str(path.relative_to(TREE)) for path in rules() if str(path) in loaded])
    for case in cases:
        began = time.process_time()
        try:
            found = answer(case)
        except Exception as crash:
            print(f"a crash: {type(crash).__name__}: {crash}: {case}", file=sys.stderr)
            continue
        finally:
            _, lines = probes.told()
        ran = {
            (file, line)
            for file, mask in lines.items()
            for line in range(mask.bit_length())
            if mask >> line & 1
        }
        yield Told(case, found, time.process_time() - began, frozenset(ran), frozenset(_values(found)))


def chosen(all_told: Sequence[Told], keep: int) -> list[Told]:
    """Greedily, by what each adds a second: lines first, then values that more than two answers hold."""
    seen = Counter(value for one in all_told for value in one.values)
    lines, values = set[tuple[str, int]](), {value for value, count in seen.items() if count < 3}
    found = list[Told]()

    def worth(one: Told) -> float:
        return (_A_LINE * len(one.lines - lines) + len(one.values - values)) / (0.03 + one.seconds)

    left = [(-worth(one), number) for number, one in enumerate(all_told) if one.seconds < _SECONDS]
    heapify(left)
    while left and len(found) < keep:
        _, number = heappop(left)
        one = all_told[number]
        now = -worth(one)
        if left and now > left[0][0]:  # what was chosen since has taken some of its worth
            heappush(left, (now, number))
            continue
        found.append(one)
        lines |= one.lines
        values |= one.values
    return found


def _values(found: Any, name: str = "") -> Iterator[int]:
    if isinstance(found, dict):
        for member, value in found.items():
            yield from _values(value, f"{name}.{member}")
    else:
        yield hash((name, json.dumps(found)))


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--keep", type=int, default=450)
    asked = options.parse_args()
    known = [case for case, _ in read()]
    kept = chosen([*told([*known, *drawn(asked.seed, asked.count)])], asked.keep)
    write((one.case, one.answer) for one in kept)
    there = {str(case) for case in known}
    new = sum(str(one.case) not in there for one in kept)
    print(f"{len(kept)} deployments, {new} of them new; {sum(one.seconds for one in kept):.0f} s")


if __name__ == "__main__":
    main()
