"""One trial of a fit: the flags that are solved for, and the report of a whole start with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.memory.change import Change, change_of
from sgl_tune.memory.options import Goals
from sgl_tune.memory.report import MemoryReport

NO_GRAPHS = 0
NOTCHES = 1000  # SGLang itself rounds its fraction to this


@dataclass(frozen=True, slots=True)
class Knobs:
    """Flags of the whole server; None is left as it was asked. `graphs` is the largest batch."""

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
    """`report` is of the rank with the least to spare. `notch`: of the fraction."""

    knobs: Knobs
    notch: int
    report: MemoryReport

    @property
    def flags(self) -> dict[str, Any]:
        return {"mem_fraction_static": self.notch / NOTCHES, **self.knobs.flags()}

    @property
    def slack(self) -> int:
        """Bytes left where the start is tightest; negative where it died."""
        if self.report.oom is not None:
            return min(-1, self.report.oom.free_bytes - self.report.oom.tried_bytes)
        return self.report.free_at_peak_bytes

    @property
    def notch_bytes(self) -> int:
        """The bytes of one notch of the fraction."""
        first = self.report.phase("communicator")
        return 0 if first is None else self.report.free_after(first) // NOTCHES

    @property
    def least_notch(self) -> int:
        """Below it weights alone take more than the fraction."""
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
    """`beyond` is the best start with a fraction one notch higher: it dies or leaves less than is wanted.
    None where no fraction is higher."""

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
