"""One trial of a fit: the flags that are solved for, and a whole start simulated with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.flags.spelling import spelled
from runtime.server.releases import Release
from runtime.start.run_record import Phase
from sgl_tune.memory.predict import predict, settled
from sgl_tune.memory.report import MemoryReport, peaking
from sgl_tune.memory.start import Start

NO_GRAPHS = 0
OVERDRAFT = 1 << 44
NOTCHES = 1000  # SGLang itself rounds its fraction to this
_DECODE_GRAPHS = ("cuda_graph_bs", "cuda_graph_bs_decode", "cuda_graph_config")


@dataclass(frozen=True, slots=True)
class Knobs:
    """As flags of the whole server; None is left as the deployment has it. `graphs` is the largest batch."""

    chunk: int | None
    graphs: int | None
    requests: int | None

    def flags(self, graphs_flag: str = "cuda_graph_max_bs") -> dict[str, Any]:
        flags: dict[str, Any] = {"chunked_prefill_size": self.chunk, "max_running_requests": self.requests}
        if self.graphs == NO_GRAPHS:
            flags["disable_cuda_graph"] = True
        else:
            flags[graphs_flag] = self.graphs
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
        """Bytes left where the start is tightest; less than none where it went beyond the GPU, or died."""
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


def difference(before: Knobs, after: Knobs) -> str:
    if before.graphs != after.graphs:
        return f"graphs to {after.graphs:,}, not {before.graphs:,}" if after.graphs else "no graphs"
    if before.chunk != after.chunk:
        return f"chunks of {after.chunk:,}, not {before.chunk:,}"
    return f"{after.requests:,} requests at once, not {before.requests:,}"


def flag_line(flags: dict[str, Any], release: Release) -> str:
    shown = {name: f"{value:.3f}" if isinstance(value, float) else value for name, value in flags.items()}
    return " ".join(spelled(release, name, value) for name, value in shown.items())


def _left_at_peak(report: MemoryReport, phase: Phase) -> int:
    """With all that torch reserved, and below none where the start went beyond the GPU."""
    return report.total_bytes - phase.non_torch_bytes - phase.reserved_peak_bytes


def _tightest(trials: Sequence[Trial]) -> Trial:
    return min(trials, key=lambda of: (of.report.verdict == "fits", of.slack))


def _predicted(starts: Sequence[Start]) -> list[MemoryReport]:
    """Of one server, together."""
    return settled(starts, [predict(start) for start in starts], lambda again: [*map(predict, again)])


class Trials:
    """Simulated starts of one deployment, all kinds of its ranks; each is done once."""

    def __init__(self, starts: Sequence[Start]) -> None:
        self._starts = starts
        self._done: dict[tuple[Knobs, int, bool], Trial] = {}

    @property
    def count(self) -> int:
        return len(self._done)

    @property
    def first(self) -> Start:
        return self._starts[0]

    def as_asked(self) -> MemoryReport:
        """Beyond the GPU where it must be."""
        starts = [replace(start, overdraft=OVERDRAFT) for start in self._starts]
        return _tightest([Trial.of(report) for report in _predicted(starts)]).report

    def __call__(self, knobs: Knobs, notch: int, beyond: bool = False) -> Trial:
        """`beyond` the GPU's memory, or as the server would die."""
        key = (knobs, notch, beyond)
        if key not in self._done:
            flags = {"mem_fraction_static": notch / NOTCHES, **knobs.flags(self._graphs_flag)}
            starts = [start.asking(**flags) for start in self._starts]
            reports = _predicted([replace(start, overdraft=OVERDRAFT if beyond else 0) for start in starts])
            trials = [Trial(knobs, notch, flags, report) for report in reports]
            self._done[key] = _tightest(trials)
        return self._done[key]

    @property
    def _graphs_flag(self) -> str:
        given = self.first.deployment.inputs.asked.cuda_graph_max_bs_decode
        return "cuda_graph_max_bs" if given is None else "cuda_graph_max_bs_decode"

    def knobs(self, report: MemoryReport, requests: int | None) -> Knobs:
        """What the deployment has come to; where it names graphs one by one, or none, they stay."""
        server, sizes = self.first.deployment.server, report.sizes
        asked, ranks = self.first.deployment.inputs.asked, self.first.parallel.attn_dp
        graphs = max(self.first.runtime.decode_graphs, default=None)
        if any(getattr(asked, name) for name in _DECODE_GRAPHS):
            graphs = None
        if requests is not None:
            requests = -(-requests // ranks) * ranks
        running = requests or server.max_running_requests or (sizes.max_running_requests or 0) * ranks
        chunk = (sizes.chunked_prefill_size or 0) * ranks if server.chunked_prefill_size > 0 else None
        return Knobs(chunk or None, graphs, running or None)
