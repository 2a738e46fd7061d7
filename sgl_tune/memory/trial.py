"""One trial of a fit: the flags that are solved for, and the report of a whole start with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.sglang.releases import Release
from runtime.start.run_record import Phase
from sgl_tune.deployment.options import spelled
from sgl_tune.memory.goals import Goals
from sgl_tune.memory.report import MemoryReport, peaking

NO_GRAPHS = 0
NOTCHES = 1000  # SGLang itself rounds its fraction to this


@dataclass(frozen=True, slots=True)
class Knobs:
    """As flags of the whole server; None is left as the deployment has it. `graphs` is the largest batch."""

    chunk: int | None
    graphs: int | None
    requests: int | None

    def flags(self) -> dict[str, Any]:
        flags: dict[str, Any] = {"chunked_prefill_size": self.chunk, "max_running_requests": self.requests}
        if self.graphs == NO_GRAPHS:
            flags["disable_cuda_graph"] = True
        else:
            flags["cuda_graph_max_bs"] = self.graphs
        return {name: value for name, value in flags.items() if value is not None}


AS_ASKED = Knobs(None, None, None)


@dataclass(frozen=True, slots=True)
class Trial:
    """`report` is of the rank with the least to spare. Of a start as it was asked for, `flags` are none."""

    knobs: Knobs
    notch: int
    flags: dict[str, Any]
    report: MemoryReport

    @classmethod
    def of(cls, asked: MemoryReport, knobs: Knobs = AS_ASKED, notch: int = 0) -> Trial:
        return cls(knobs, notch, {}, asked)

    @property
    def slack(self) -> int:
        """Bytes left where the start is tightest; less than none where it died."""
        if self.report.oom is not None:
            return min(-1, self.report.oom.free_bytes - self.report.oom.tried_bytes)
        return _left_at_peak(self.report, self.tightest) if self.tightest else 0

    @property
    def tightest(self) -> Phase | None:
        """Where memory is least, or ran out; of nested phases the inner one."""
        if self.report.failure is not None and self.report.oom is not None:
            return self.report.failure.at_failure
        return min(
            peaking(self.report.phases),
            key=lambda of: (_left_at_peak(self.report, of), -of.depth),
            default=None,
        )

    @property
    def notch_bytes(self) -> int:
        """What a notch of the fraction is."""
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

    def line(self, release: Release) -> str:
        return flag_line(self.flags, release)


@dataclass(frozen=True, slots=True)
class Fit:
    """`beyond` is the best start a notch further, None where no fraction is higher. It dies, or leaves less
    than is wanted."""

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


def flag_line(flags: Mapping[str, Any], release: Release) -> str:
    """To paste, as that release spells them."""
    shown = {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in flags.items()}
    return " ".join(spelled(release, name, value) for name, value in shown.items())


def _left_at_peak(report: MemoryReport, phase: Phase) -> int:
    """With all that torch reserved."""
    return report.total_bytes - phase.non_torch_bytes - phase.reserved_peak_bytes
