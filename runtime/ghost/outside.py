"""The table of what lies outside torch: how many bytes come with what, and how far off they may be.

The C libraries charge each number when what needs it comes: a context, a new kernel, a handle of cuBLAS, a
communicator of NCCL, an instantiated graph. No number belongs to a model.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("outside.toml")
COMMUNICATOR = "communicator_"  # and its number of ranks
COMMUNICATOR_COUNT = "communicators_"  # of a record: how many of so many ranks
MOST_RANKS = 64


@dataclass(frozen=True)
class Number:
    """Bytes, and how many more or fewer they may be."""

    bytes: int
    doubt: int
    source: str


@dataclass(frozen=True)
class Outside:
    numbers: Mapping[str, Number]

    def text(self) -> str:
        """The numbers as the C libraries read them. A communicator that nobody measured lies on a line."""
        pairs = {name: one.bytes for name, one in self.numbers.items() if not name.startswith(COMMUNICATOR)}
        for ranks in range(2, MOST_RANKS + 1):
            if self.communicators:
                pairs[str(ranks)] = self.communicator(ranks).bytes
        return ";".join(f"{name}={bytes}" for name, bytes in pairs.items())

    @property
    def communicators(self) -> dict[int, Number]:
        return {
            int(name.removeprefix(COMMUNICATOR)): one
            for name, one in sorted(self.numbers.items())
            if name.startswith(COMMUNICATOR)
        }

    def communicator(self, ranks: int) -> Number:
        known = self.communicators
        if ranks in known:
            return known[ranks]
        sizes = sorted(known)
        few, many = next((pair for pair in pairwise(sizes) if ranks < pair[1]), (sizes * 2)[-2:])
        slope = (known[many].bytes - known[few].bytes) / (many - few) if many > few else 0
        guess = max(0, round(known[few].bytes + slope * (ranks - few)))
        return Number(guess, guess // 2, f"on a line through {few} and {many} ranks")

    def doubt_of(self, counted: Mapping[str, int]) -> int:
        """How far off all of it may be for a start that counted these things."""
        doubts = {name: one.doubt for name, one in self.numbers.items()}
        once = sum(doubts.get(name, 0) for name in ("context", "libraries", "room", "cublas", "cublas_code"))
        often = {
            "graphs": doubts.get("graph", 0),
            "nodes": doubts.get("node", 0),
            "modules": doubts.get("module", 0),
            "messages": doubts.get("message", 0),
            "message_graphs": doubts.get("message_graph", 0),
        }
        ranks = [int(name[len("communicators_") :]) for name in counted if name.startswith("communicators_")]
        groups = sum(counted[f"communicators_{n}"] * self.communicator(n).doubt for n in ranks if n > 1)
        first = doubts.get("first", 0) if groups else 0
        return once + sum(counted.get(name, 0) * doubt for name, doubt in often.items()) + groups + first

    def margin(self, counted: Mapping[str, int]) -> int:
        """How many bytes more or fewer a start may hold outside torch that brought what a record counted."""
        brought = {
            "context": 1,
            "room": 1,
            "module": counted.get("modules", 0),
            "graph": counted.get("graphs", 0) + counted.get("branches", 0),
            "node": counted.get("nodes", 0),
            "message_graph": counted.get("message_graphs", 0),
            "message": counted.get("messages", 0),
        }
        margin = sum(count * self.numbers[name].doubt for name, count in brought.items())
        opened = {ranks: counted.get(f"{COMMUNICATOR_COUNT}{ranks}", 0) for ranks in range(2, 9)}
        if any(opened.values()):
            margin += self.numbers["first"].doubt
        return margin + sum(
            count * self.communicator(ranks).doubt for ranks, count in opened.items() if count
        )

    def with_numbers(self, **bytes: int) -> Outside:
        """The same table with other bytes, as a fit to fewer starts gives them."""
        changed = {name: replace(self.numbers[name], bytes=value) for name, value in bytes.items()}
        return Outside({**self.numbers, **changed})


def table() -> Outside:
    return Outside({name: Number(**entry) for name, entry in tomllib.loads(TABLE.read_text("utf-8")).items()})
