"""A start beside an earlier one: what is gone, what is new, and whether the predicted saving came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgl_tune.start_report.phases import PHASES, UNEXPLAINED
from sgl_tune.start_report.report import StartReport

_ORDER = (*PHASES, UNEXPLAINED)


@dataclass(frozen=True, slots=True)
class Change:
    phase: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    def to_json(self) -> dict[str, Any]:
        times = {"before": self.before, "after": self.after, "difference": self.difference}
        return {"phase": self.phase, **{name: round(seconds, 3) for name, seconds in times.items()}}


@dataclass(frozen=True, slots=True)
class Against:
    before: StartReport
    after: StartReport
    changes: tuple[Change, ...]

    @property
    def saved_seconds(self) -> float:
        return self.before.wall_seconds - self.after.wall_seconds

    @property
    def is_comparable(self) -> bool:
        """A start that did not end took longer than anybody knows."""
        return self.before.ready and self.after.ready

    def to_json(self) -> dict[str, Any]:
        return {
            "before_seconds": round(self.before.wall_seconds, 3),
            "saved_seconds": round(self.saved_seconds, 3) if self.is_comparable else None,
            "predicted_seconds": round(self.before.saves_seconds, 3),
            "not_compiled_again": [m for m in self.before.compiled if m not in self.after.compiled],
            "changes": [change.to_json() for change in self.changes],
        }


def compared(before: StartReport, after: StartReport) -> Against:
    old, new = _seconds(before), _seconds(after)
    names = sorted(old.keys() | new.keys(), key=_ORDER.index)
    changes = [Change(name, old.get(name, 0.0), new.get(name, 0.0)) for name in names]
    return Against(before, after, tuple(changes))


def headline(found: Against) -> str:
    times = f"was {found.before.wall_seconds:.1f} s, is {found.after.wall_seconds:.1f} s"
    if not found.is_comparable:
        return f"{times}; one of them was not ready, so nothing is said of a saving"
    saved = found.saved_seconds
    verdict = f"{saved:.1f} s saved" if saved >= 0 else f"{-saved:.1f} s more"
    predicted = found.before.saves_seconds
    return f"{times}: {verdict}" + (f", {predicted:.1f} s were predicted" if predicted >= 0.05 else "")


def _seconds(report: StartReport) -> dict[str, float]:
    times = {phase.name: phase.seconds for phase in report.phases}
    return {**times, UNEXPLAINED: report.unexplained_seconds}
