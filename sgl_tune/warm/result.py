"""The result of a warm: what the workers measured, and what was written and proven."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sgl_tune.cache.store import Written
from sgl_tune.warm.proof import Proof

if TYPE_CHECKING:
    from sgl_tune.cache.asked import CachePlan
    from sgl_tune.keys.plan import Plan
    from sgl_tune.recorded.plan import RecordedPlan

_MEASURED = ("best_ms", "default_ms", "runner_up", "launches")


@dataclass(frozen=True, slots=True)
class Failure:
    """A bucket for which no tactic works. A server would search it again at every start."""

    op: str
    bucket: int
    reasons: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {"op": self.op, "bucket": self.bucket, "tactics": self.reasons}


@dataclass(frozen=True, slots=True)
class CacheReport:
    known: frozenset[str]
    tuned_keys: frozenset[str]
    failed: tuple[Failure, ...]
    failed_tactics: int
    seconds: float
    measured: dict[str, dict[str, float | None]]
    races: dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Report:
    environment: dict[str, str]
    caches: tuple[CacheReport, ...]
    peak_bytes: int | None
    routings: dict[str, Any]
    steps: dict[str, float]  # seconds by step of the first worker


def read_report(data: Mapping[str, Any]) -> Report:
    caches = tuple(map(_cache_report, data["caches"]))
    return Report(data["environment"], caches, data["peak_bytes"], data["routings"], data["steps"])


def _cache_report(data: dict[str, Any]) -> CacheReport:
    results = data["results"]
    tuned = [one for one in results if one["tactic"] is not None]
    return CacheReport(
        known=frozenset(data["known"]),
        tuned_keys=frozenset(one["file_key"] for one in tuned),
        failed=tuple(
            Failure(one["op"], one["bucket"], one["failed"]) for one in results if one["tactic"] is None
        ),
        failed_tactics=sum(len(one["failed"]) for one in results),
        seconds=data["prepare_seconds"] + data["search_seconds"],
        measured={one["file_key"]: {name: one[name] for name in _MEASURED} for one in tuned},
        races={one["file_key"]: one["race"] for one in results if one["race"]},
    )


@dataclass(frozen=True, slots=True)
class WarmCache:
    """The result of one cache key."""

    plan: "CachePlan"
    report: CacheReport
    written: Written
    proof: Proof | None

    @property
    def tuned(self) -> int:
        return len(self.report.tuned_keys)

    @property
    def reused(self) -> int:
        planned = {key for op in self.plan.ops for key in op.keys}
        return len(planned & self.report.known - self.report.tuned_keys)

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "tuned": self.tuned,
            "reused": self.reused,
            "failed": [failure.to_json() for failure in self.report.failed],
            "proof": asdict(self.proof) if self.proof else None,
            "digest": self.written.digest,
        }


@dataclass(frozen=True, slots=True)
class Warmed:
    plan: "Plan | RecordedPlan"
    caches: tuple[WarmCache, ...]
    seconds_by_stage: dict[str, float]
    seconds_by_step: dict[str, dict[str, float]]  # seconds inside the worker and the prover
    peak_bytes: int | None
    workers: int

    @property
    def is_proven(self) -> bool:
        return all(cache.proof is not None and cache.proof.is_good for cache in self.caches)

    @property
    def is_good(self) -> bool:
        """Whether no later start searches, by the proof, or else by the search's own result."""
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
