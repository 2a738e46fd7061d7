"""Compare a start with an earlier one: what is gone, what is new, and whether the predicted saving came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgl_tune.start_report.phases import PHASES, UNEXPLAINED
from sgl_tune.start_report.report import StartReport


@dataclass(frozen=True, slots=True)
class Against:
    before: StartReport
    after: StartReport

    @property
    def changes(self) -> dict[str, tuple[float, float]]:
        """Return each phase's seconds before and after, in the order of a start."""
        old, new = _seconds(self.before), _seconds(self.after)
        names = [name for name in (*PHASES, UNEXPLAINED) if name in old or name in new]
        return {name: (old.get(name, 0.0), new.get(name, 0.0)) for name in names}

    @property
    def saved_seconds(self) -> float | None:
        """Return the saved seconds, or None if one start was not ready, because its duration is unknown."""
        is_known = self.before.ready and self.after.ready
        return self.before.wall_seconds - self.after.wall_seconds if is_known else None

    @property
    def headline(self) -> str:
        times = f"was {self.before.wall_seconds:.1f} s, is {self.after.wall_seconds:.1f} s"
        saved, predicted = self.saved_seconds, self.before.saves_seconds
        if saved is None:
            return f"{times}; one of the two was not ready, so the saving is unknown"
        verdict = f"{saved:.1f} s saved" if saved >= 0 else f"{-saved:.1f} s more"
        return f"{times}: {verdict}" + (f", {predicted:.1f} s were predicted" if predicted >= 0.05 else "")

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (name, f"{old:.1f} s", f"{new:.1f} s", "gone" if old and not new else f"{new - old:+.1f} s")
            for name, (old, new) in self.changes.items()
            if old or new
        ]

    def to_json(self) -> dict[str, Any]:
        saved, compiled = self.saved_seconds, self.after.compiled
        return {
            "before_seconds": round(self.before.wall_seconds, 3),
            "saved_seconds": None if saved is None else round(saved, 3),
            "predicted_seconds": round(self.before.saves_seconds, 3),
            "not_compiled_again": [module for module in self.before.compiled if module not in compiled],
            "changes": [
                {
                    "phase": name,
                    "before": round(old, 3),
                    "after": round(new, 3),
                    "difference": round(new - old, 3),
                }
                for name, (old, new) in self.changes.items()
            ],
        }


def _seconds(report: StartReport) -> dict[str, float]:
    times = {phase.name: phase.seconds for phase in report.phases}
    return {**times, UNEXPLAINED: report.unexplained_seconds}
