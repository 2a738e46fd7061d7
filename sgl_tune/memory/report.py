"""The memory of one rank's start as data, the same for a prediction, a measurement and a run's file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from runtime.devices.readings import OutOfMemory
from runtime.record.checked import to_plain
from runtime.start.run_record import Failure, Phase, Run
from sgl_tune.memory.parts import Owned, Share, beyond_peak, in_begin_order, parts_of, peaking
from sgl_tune.units import memory_bytes

Source = Literal["core", "measured", "ghost"]
Verdict = Literal["fits", "oom", "failed", "refused", "unfinished"]


@dataclass(frozen=True, slots=True)
class Constant:
    """Memory that torch cannot count: `bytes` for `times` things of one kind. `doubt`: the error in bytes;
    None means a tenth."""

    name: str
    bytes: int
    source: str
    times: int = 1
    doubt: int | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes that the start resolved. Each follows from the ones before it."""

    mem_fraction_static: float | None = None
    kv_bytes_per_token: int | None = None
    kv_tokens: int | None = None
    states: int | None = None  # states of recurrent layers, one per request
    state_bytes: int | None = None
    context_length: int | None = None
    max_running_requests: int | None = None
    dummy_batch_rows: int | None = None
    chunked_prefill_size: int | None = None
    prefill_graphs: tuple[int, ...] = ()
    decode_graphs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of flags with which a simulated start fits. `command`: the user's own command with it."""

    flags: str
    free_at_peak_bytes: int
    kv_tokens: int | None
    cost: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    predicted: int
    other: int
    in_bytes: bool = True

    @property
    def difference(self) -> str:
        """Return by how much the prediction differs from what happened: `+120 MiB, +0.1 %`."""
        amount = self.predicted - self.other
        text = f"{'+' if amount > 0 else ''}{memory_bytes(amount) if self.in_bytes else f'{amount:,}'}"
        return f"{text}, {amount / self.other:+.1%}".replace("%", " %") if self.other else text


@dataclass(frozen=True, slots=True)
class Comparison:
    title: str
    other: str
    rows: tuple[Row, ...]

    def to_json(self) -> dict[str, object]:
        rows = [{**asdict(row), "difference": row.difference} for row in self.rows]
        return {"title": self.title, "other": self.other, "rows": rows}


@dataclass(frozen=True, slots=True)
class Whose:
    """The rank that a report is about. `flags`: the server's flags, as the user gave them."""

    gpu: str
    source: Source
    title: str = ""
    subtitle: str = ""
    flags: str = ""
    rank: int = 0
    rank_name: str = "TP0"
    is_gpu_assumed: bool = False


@dataclass(frozen=True, slots=True)
class Trust:
    """How far a report can be believed. `exact`: torch's numbers up to ready equal those of a real start.
    `inexact`: what may be wrong. `warnings`: always shown. `notes`: where the numbers come from."""

    exact: bool = False
    inexact: tuple[str, ...] = ()
    not_modelled: str = ""
    cage_lacks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryReport:
    whose: Whose
    total_bytes: int
    run: Run
    sizes: Sizes = Sizes()
    margin_bytes: int = 0
    trust: Trust = Trust()
    owned: Owned = field(default_factory=Owned)
    constants: tuple[Constant, ...] = ()
    refused: str = ""  # SGLang's own words
    stack: tuple[str, ...] = ()  # calls that led to the server's end, the innermost last
    remedies: tuple[Remedy, ...] = ()
    what_if: "Mapping[str, MemoryReport]" = field(default_factory=dict)
    ranks: "tuple[MemoryReport, ...]" = ()
    comparisons: tuple[Comparison, ...] = ()

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
        """Return the bytes that the failed allocation lacked, or None if the driver named no size."""
        if self.oom is None or self.oom.by_driver:
            return None
        return max(0, self.oom.tried_bytes - self.oom.free_bytes)

    @property
    def is_inside_bar(self) -> bool:
        """Whether the opposite verdict lies within the error bar."""
        if self.verdict == "fits":
            return self.margin_bytes > self.free_at_peak_bytes
        return self.missing_bytes is not None and self.margin_bytes > self.missing_bytes

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Return all phases in the order they began, with the failed one as it was at the failure."""
        seen = list(self.run.phases)
        if self.failure is not None:
            seen.append(self.failure.at_failure)
        return tuple(in_begin_order(seen))

    @property
    def failed(self) -> Phase | None:
        return self.failure.at_failure if self.failure else None

    @property
    def peak(self) -> Phase | None:
        """Return the phase that leaves the least free memory; of nested phases, the innermost."""
        return min(
            peaking(self.phases), key=lambda phase: (phase.free_at_peak_bytes, -phase.depth), default=None
        )

    @property
    def tightest(self) -> Phase | None:
        """Return the phase that ran out of memory, else the phase with the least free memory."""
        return self.failed or self.peak

    @property
    def free_at_peak_bytes(self) -> int:
        return self.peak.free_at_peak_bytes if self.peak else self.total_bytes

    @property
    def parts(self) -> tuple[tuple[Share, ...], ...]:
        """Return the shares of each phase at its peak; they add up to the GPU."""
        return parts_of(self.phases, self.failed, self.owned, self.total_bytes)

    @property
    def held(self) -> tuple[Share, ...]:
        """Return the shares at the tightest moment."""
        found = zip(self.phases, self.parts, strict=True)
        return next((parts for phase, parts in found if phase is self.tightest), ())

    def free_after(self, phase: Phase) -> int:
        """Return the driver's free memory after the phase has ended."""
        return self.total_bytes - phase.non_torch_bytes - phase.reserved_bytes

    def phase(self, name: str) -> Phase | None:
        return next((phase for phase in self.phases if phase.name == name), None)

    def with_notes(self, *notes: str, warnings: Iterable[str] = ()) -> "MemoryReport":
        """Return the report with these notes and warnings before its own."""
        mine, said = (*notes, *self.trust.notes), (*warnings, *self.trust.warnings)
        return replace(self, trust=replace(self.trust, notes=mine, warnings=said))

    def to_json(self) -> dict[str, Any]:
        trust = to_plain(self.trust)
        trust["notes"] = [*trust.pop("warnings"), *trust["notes"]]
        trust["not_modelled"] = trust["not_modelled"] or None
        return {
            **asdict(self.whose),
            **trust,
            "verdict": self.verdict,
            "total_bytes": self.total_bytes,
            "refused": self.refused or None,
            "stack": list(self.stack),
            "sizes": asdict(self.sizes),
            "phases": [
                self._phase_json(phase, parts) for phase, parts in zip(self.phases, self.parts, strict=True)
            ],
            "held": [asdict(share) for share in self.held],
            "free_at_peak_bytes": self.free_at_peak_bytes,
            "margin_bytes": self.margin_bytes,
            "is_inside_error_bar": self.is_inside_bar,
            "constants": [asdict(constant) for constant in self.constants],
            "failed_in": self.run.failed_in,
            "failure": self.failure.error if self.failure else None,
            "oom": self._oom_json(),
            "remedies": [asdict(remedy) for remedy in self.remedies],
            "what_if": {name: report.to_json() for name, report in self.what_if.items()},
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "ranks": [report.to_json() for report in self.ranks],
        }

    def _phase_json(self, phase: Phase, parts: Sequence[Share]) -> dict[str, Any]:
        held, (cached, _) = [asdict(share) for share in parts], beyond_peak(phase, self.total_bytes)
        found = {"cached_bytes": cached, "failed": phase is self.failed, "held": held}
        return {**asdict(phase), **found}

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


def worst(reports: Sequence[MemoryReport]) -> MemoryReport:
    """Return the report of the rank that ran out of memory, else of the rank with the least free memory."""
    return min(reports, key=lambda report: (report.verdict == "fits", report.free_at_peak_bytes))


@dataclass(frozen=True, slots=True)
class Answer:
    report: MemoryReport
    sweep: Mapping[str, MemoryReport] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**self.report.to_json(), "sweep": {name: one.to_json() for name, one in self.sweep.items()}}
