"""One trial of a fit: the flags that the fit solves for, and the report of a complete start with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.memory.change import Change, change_of
from sgl_tune.memory.options import Goals
from sgl_tune.memory.report import MemoryReport

NO_GRAPHS = 0
NOTCHES = 1000  # SGLang rounds its fraction to thousandths


@dataclass(frozen=True, slots=True)
class Knobs:
    """Flags that a fit may change; None: as the user asked. `graphs`: the largest batch."""

    chunk: int | None = None
    graphs: int | None = None
    requests: int | None = None

    def flags(self) -> dict[str, Any]:
        graphs = (
            {"disable_cuda_graph": True} if self.graphs == NO_GRAPHS else {"cuda_graph_max_bs": self.graphs}
        )
        flags = {"chunked_prefill_size": self.chunk, "max_running_requests": self.requests, **graphs}
        return {name: value for name, value in flags.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Trial:
    """A start with certain flags. `report`: the rank with the least free memory. `notch`: the memory
    fraction in thousandths."""

    knobs: Knobs
    notch: int
    report: MemoryReport

    @property
    def flags(self) -> dict[str, Any]:
        return {"mem_fraction_static": self.notch / NOTCHES, **self.knobs.flags()}

    @property
    def slack(self) -> int:
        """Return the free bytes at the tightest moment; negative if the start ran out of memory."""
        if self.report.oom is not None:
            return min(-1, self.report.oom.free_bytes - self.report.oom.tried_bytes)
        return self.report.free_at_peak_bytes

    @property
    def notch_bytes(self) -> int:
        """Return the bytes of one thousandth of the memory fraction."""
        first = self.report.phase("communicator")
        return 0 if first is None else self.report.free_after(first) // NOTCHES

    @property
    def least_notch(self) -> int:
        """Return the least `notch` whose memory fraction has room for the weights."""
        weights = [of for of in self.report.phases if of.name in ("weights", "draft weights")]
        if not weights or not self.notch_bytes:
            return 1
        taken = NOTCHES - self.report.free_after(weights[-1]) / self.notch_bytes
        return max(1, int(taken) + 1)

    @property
    def tokens(self) -> int:
        return self.report.sizes.kv_tokens or 0

    def change(self, release: Release) -> Change:
        return change_of(self.flags, release)


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a fit. `beyond`: the best start with the next higher fraction, which runs out of
    memory or leaves too little; None if there is no higher fraction."""

    goals: Goals
    asked: MemoryReport
    best: Trial
    beyond: Trial | None
    given_up: tuple[str, ...]


def difference(before: Knobs, after: Knobs) -> str:
    if before.graphs != after.graphs:
        return f"graphs to {after.graphs:,}, not {before.graphs:,}" if after.graphs else "no graphs"
    if before.chunk != after.chunk:
        return f"chunks of {after.chunk:,}, not {before.chunk:,}"
    return f"{after.requests:,} requests at once, not {before.requests:,}"
