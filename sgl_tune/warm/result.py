"""What a warm came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sgl_tune.cache.store import Written
from sgl_tune.warm.filling import Planned, PlannedCache
from sgl_tune.warm.proof import Proof
from sgl_tune.warm.report import CacheReport


@dataclass(frozen=True, slots=True)
class WarmCache:
    """One key's result."""

    plan: PlannedCache
    report: CacheReport
    written: Written
    proof: Proof | None

    @property
    def tuned(self) -> int:
        return len(self.report.tuned_keys)

    @property
    def reused(self) -> int:
        return len(self._planned & self.report.known - self.report.tuned_keys)

    @property
    def _planned(self) -> set[str]:
        return {key for op in self.plan.ops for key in op.keys}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "tuned": self.tuned,
            "reused": self.reused,
            "failed": [failure.to_json() for failure in self.report.failed],
            "proof": self.proof.to_json() if self.proof else None,
            "digest": self.written.digest,
        }


@dataclass(frozen=True, slots=True)
class Warmed:
    plan: Planned
    caches: tuple[WarmCache, ...]
    seconds_by_stage: dict[str, float]
    seconds_by_step: dict[str, dict[str, float]]  # inside the worker and the prover
    peak_bytes: int | None
    workers: int

    @property
    def is_proven(self) -> bool:
        return all(cache.proof is not None and cache.proof.is_good for cache in self.caches)

    @property
    def is_good(self) -> bool:
        """Whether no later start searches: by the proof, or without one by the search itself."""
        return all(cache.proof.is_good if cache.proof else not cache.report.failed for cache in self.caches)

    def to_json(self) -> dict[str, Any]:
        target, *drafts = (cache.to_json() for cache in self.caches)
        data = {
            **self.plan.to_json(),
            **target,
            "workers": self.workers,
            "seconds": round(sum(self.seconds_by_stage.values()), 3),
            "seconds_by_stage": {name: round(took, 3) for name, took in self.seconds_by_stage.items()},
            "seconds_by_step": {
                who: {name: round(took, 3) for name, took in steps.items()}
                for who, steps in self.seconds_by_step.items()
            },
            "peak_bytes": self.peak_bytes,
        }
        return {**data, "draft": drafts[0]} if drafts else data
