"""What one rank's start costs, as data: the same record for a prediction, a measurement and a run's file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from runtime.devices.readings import OutOfMemory
from runtime.start.run_record import Failure, Phase, Run
from sgl_tune.units import memory_bytes

Source = Literal["core", "measured", "ghost"]
Verdict = Literal["fits", "oom", "failed", "refused", "unfinished"]


@dataclass(frozen=True, slots=True)
class Constant:
    """Memory that torch cannot count: `bytes` of it, for `times` things of a kind, and how it is known.

    `doubt`: how many bytes more or less; a tenth where nobody says.
    """

    name: str
    bytes: int
    source: str
    times: int = 1
    doubt: int | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the start resolved on the way: each follows from the ones before it."""

    mem_fraction_static: float | None = None
    kv_bytes_per_token: int | None = None
    kv_tokens: int | None = None
    states: int | None = None  # of layers that keep one a request
    state_bytes: int | None = None
    context_length: int | None = None
    max_running_requests: int | None = None
    dummy_batch_rows: int | None = None
    chunked_prefill_size: int | None = None
    prefill_graphs: tuple[int, ...] = ()
    decode_graphs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of the GPU that something holds at the tightest moment of a start."""

    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of flags with which the start fits: simulated, not guessed."""

    flags: str
    free_at_peak_bytes: int
    kv_tokens: int | None
    cost: str


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    predicted: int
    other: int
    in_bytes: bool = True

    @property
    def difference(self) -> str:
        """Of the prediction from what happened: `+120 MiB, +0.1 %`."""
        amount = self.predicted - self.other
        text = f"{'+' if amount > 0 else ''}{memory_bytes(amount) if self.in_bytes else f'{amount:,}'}"
        return f"{text}, {amount / self.other:+.1%}".replace("%", " %") if self.other else text


@dataclass(frozen=True, slots=True)
class Comparison:
    title: str
    other: str
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, object]:
        rows = [
            {
                "what": row.what,
                "predicted": row.predicted,
                "other": row.other,
                "in_bytes": row.in_bytes,
                "difference": row.difference,
            }
            for row in self.rows
        ]
        return {"title": self.title, "other": self.other, "rows": rows}


@dataclass(frozen=True, slots=True)
class MemoryReport:
    gpu: str
    total_bytes: int
    source: Source
    run: Run
    rank: int = 0
    rank_name: str = "TP0"
    sizes: Sizes = Sizes()
    constants: tuple[Constant, ...] = ()
    margin_bytes: int = 0
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: str = ""
    what_if: Mapping[str, MemoryReport] = field(default_factory=dict)
    ranks: tuple[MemoryReport, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    title: str = ""
    subtitle: str = ""
    flags: str = ""  # what was set of the server's
    is_gpu_assumed: bool = False
    refused: str = ""  # by SGLang, in its own words
    stack: tuple[str, ...] = ()  # the server's calls that led to its end, the innermost last
    held: tuple[Share, ...] = ()  # at the peak of the tightest phase; they add up to the GPU
    exact: bool = False  # what torch counts, up to ready, is that of a real start
    inexact: tuple[str, ...] = ()  # why a start on the ghost may be wrong, each with its phase
    cage_lacks: tuple[str, ...] = ()  # what the kernel did not keep the start from, each with the reason

    @property
    def verdict(self) -> Verdict:
        if self.refused:
            return "refused"
        if self.oom is not None:
            return "oom"
        if self.run.failure is not None:
            return "failed"
        return "unfinished" if self.run.unfinished else "fits"

    @property
    def failure(self) -> Failure | None:
        return self.run.failure

    @property
    def oom(self) -> OutOfMemory | None:
        return self.failure.out_of_memory if self.failure else None

    @property
    def missing_bytes(self) -> int | None:
        """What the allocation that did not fit lacked; None where the driver named no size."""
        if self.oom is None or self.oom.by_driver:
            return None
        return max(0, self.oom.tried_bytes - self.oom.free_bytes)

    @property
    def is_inside_bar(self) -> bool:
        """Whether the error bar is wide enough for the other verdict: it may fit, or not."""
        if self.verdict == "fits":
            return self.margin_bytes > self.free_at_peak_bytes
        return self.missing_bytes is not None and self.margin_bytes > self.missing_bytes

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Every phase that began and told something, in the order they began; the failed one as it failed."""
        seen = list(self.run.phases)
        if self.failure is not None:
            seen.append(self.failure.at_failure)
        return tuple(in_begin_order(seen))

    @property
    def peak(self) -> Phase | None:
        """The phase that leaves the GPU least; of nested ones the innermost."""
        return min(
            peaking(self.phases), key=lambda phase: (phase.free_at_peak_bytes, -phase.depth), default=None
        )

    @property
    def free_at_peak_bytes(self) -> int:
        return self.peak.free_at_peak_bytes if self.peak else self.total_bytes

    def free_after(self, phase: Phase) -> int:
        """What the driver has left when the phase has ended."""
        return self.total_bytes - phase.non_torch_bytes - phase.reserved_bytes

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    def with_note(self, note: str) -> MemoryReport:
        return replace(self, notes=(*self.notes, note))

    def to_json(self) -> dict[str, Any]:
        failed = self.failure.at_failure if self.failure else None
        return {
            "title": self.title,
            "subtitle": self.subtitle,
            "flags": self.flags,
            "verdict": self.verdict,
            "gpu": self.gpu,
            "is_gpu_assumed": self.is_gpu_assumed,
            "total_bytes": self.total_bytes,
            "source": self.source,
            "refused": self.refused or None,
            "stack": list(self.stack),
            "exact": self.exact,
            "inexact": list(self.inexact),
            "cage_lacks": list(self.cage_lacks),
            "rank": self.rank,
            "rank_name": self.rank_name,
            "sizes": asdict(self.sizes),
            "phases": [_phase_json(phase, phase is failed) for phase in self.phases],
            "held": [asdict(share) for share in self.held],
            "free_at_peak_bytes": self.free_at_peak_bytes,
            "margin_bytes": self.margin_bytes,
            "is_inside_error_bar": self.is_inside_bar,
            "constants": [asdict(constant) for constant in self.constants],
            "failed_in": self.run.failed_in,
            "failure": self.failure.error if self.failure else None,
            "oom": self._oom_json(),
            "remedies": [asdict(remedy) for remedy in self.remedies],
            "notes": list(self.notes),
            "not_modelled": self.not_modelled or None,
            "what_if": {name: report.to_json() for name, report in self.what_if.items()},
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "ranks": [report.to_json() for report in self.ranks],
        }

    def _oom_json(self) -> dict[str, Any] | None:
        if self.failure is None or self.oom is None:
            return None
        return {
            "phase": self.failure.phase,
            **asdict(self.oom),
            "tried_bytes": None if self.oom.by_driver else self.oom.tried_bytes,
            "missing_bytes": self.missing_bytes,
            "margin_bytes": self.margin_bytes,
            "is_inside_error_bar": self.is_inside_bar,
            "remedies": [asdict(remedy) for remedy in self.remedies],
        }


def cached_bytes(phase: Phase) -> int:
    """What torch held at the peak without using it. It, the peak, what lies outside torch and what was free
    are the GPU."""
    return phase.reserved_peak_bytes - phase.peak_bytes


def _phase_json(phase: Phase, failed: bool) -> dict[str, Any]:
    return {**asdict(phase), "cached_bytes": cached_bytes(phase), "failed": failed}


def peaking(phases: Sequence[Phase]) -> list[Phase]:
    """Phases in the order they began, without those whose peak is that of a phase within them."""
    return [
        phase
        for place, phase in enumerate(phases)
        if not any(inner.reserved_peak_bytes >= phase.reserved_peak_bytes for inner in _within(phases, place))
    ]


def _within(phases: Sequence[Phase], place: int) -> Iterator[Phase]:
    for phase in phases[place + 1 :]:
        if phase.depth <= phases[place].depth:
            return
        yield phase


def in_begin_order(ended: Iterable[Phase]) -> list[Phase]:
    """Phases are known in the order they ended, a nested one before the one around it."""
    done: list[list[Phase]] = []
    for phase in ended:
        inner: list[Phase] = []
        while done and done[-1][0].depth > phase.depth:
            inner = done.pop() + inner
        done.append([phase, *inner])
    return [phase for group in done for phase in group]


def worst(reports: Sequence[MemoryReport]) -> MemoryReport:
    """The rank that dies, else the one with the least to spare."""
    return min(reports, key=lambda report: (report.verdict == "fits", report.free_at_peak_bytes))


@dataclass(frozen=True, slots=True)
class Answer:
    report: MemoryReport
    sweep: Mapping[str, MemoryReport] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.report.to_json(),
            "sweep": {name: report.to_json() for name, report in self.sweep.items()},
        }
