"""The table of memory outside torch: the bytes of each use, and their possible error.

The C libraries charge each number at the first use of what needs it: a context, a new kernel, a handle of
cuBLAS, a communicator of NCCL, an instantiated graph. No number depends on a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from runtime.toml import tomllib

TABLE = Path(__file__).with_name("outside.toml")
COMMUNICATOR = "communicator_"  # and its number of ranks
PEERS = "peers_"  # and their number
COMMUNICATOR_COUNT = "communicators_"  # of a record: how many of so many ranks
MOST_RANKS = 64
ALIKE = 2  # ranks whose free memory was the same within 64 KiB in 20 of 20 starts
MEASURED_ON, MEASURED_RANKS = "h200", (2, 4)  # with driver 580; no other GPU or number of them was asked
_ONCE = ("context", "libraries", "room", "cublas", "cublas_code")
_OFTEN = {"module": "modules", "node": "nodes", "message": "messages", "message_graph": "message_graphs"}


@dataclass(frozen=True)
class Number:
    """Bytes, and their possible error in both directions."""

    bytes: int
    doubt: int
    source: str


@dataclass(frozen=True)
class Outside:
    numbers: Mapping[str, Number]

    def text(self) -> str:
        """Return the numbers as the C libraries read them. Unmeasured communicators lie on a line."""
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
        """Return the possible error of a start's memory outside torch, from what its record counted."""
        brought = {
            **dict.fromkeys(_ONCE, 1),
            "graph": counted.get("graphs", 0) + counted.get("branches", 0),
            **{name: counted.get(count, 0) for name, count in _OFTEN.items()},
        }
        doubt = sum(count * self._doubt(name) for name, count in brought.items() if count)
        groups = {
            int(name.removeprefix(COMMUNICATOR_COUNT)): count
            for name, count in counted.items()
            if name.startswith(COMMUNICATOR_COUNT) and count
        }
        doubts = [count * self.communicator(ranks).doubt for ranks, count in groups.items() if ranks > 1]
        doubt += sum(doubts) + (self._doubt("first") if doubts else 0)
        return doubt + self._beyond_rank_0(max(groups, default=1))

    def _doubt(self, name: str) -> int:
        if name not in self.numbers:
            raise KeyError(f"the table of memory outside torch lacks {name}")
        return self.numbers[name].doubt

    def _beyond_rank_0(self, ranks: int) -> int:
        """Return how much more than rank 0 the fullest rank may hold; the largest such if unmeasured."""
        if ranks <= ALIKE:
            return 0
        known = {name: one.bytes + one.doubt for name, one in self.numbers.items() if name.startswith(PEERS)}
        if not known:
            raise KeyError(f"the table of memory outside torch lacks {PEERS}{ranks}")
        return known.get(f"{PEERS}{ranks}", max(known.values()))

    def with_numbers(self, **bytes: int) -> Outside:
        """Return the same table with other bytes, for a fit to fewer starts."""
        changed = {name: replace(self.numbers[name], bytes=value) for name, value in bytes.items()}
        return Outside({**self.numbers, **changed})


def table() -> Outside:
    return Outside({name: Number(**entry) for name, entry in tomllib.loads(TABLE.read_text("utf-8")).items()})
