"""What the workers measured, as the launcher reads it back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MEASURED = ("best_ms", "default_ms", "runner_up", "launches")


@dataclass(frozen=True, slots=True)
class Failure:
    """A bucket without any tactic that works: a server would search it again at every start."""

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
    steps: dict[str, float]  # where the first worker's seconds went


def read_report(data: Mapping[str, Any]) -> Report:
    caches = tuple(map(_cache_report, data["caches"]))
    return Report(data["environment"], caches, data["peak_bytes"], data["routings"], data["steps"])


def _cache_report(data: dict[str, Any]) -> CacheReport:
    results = data["results"]
    return CacheReport(
        known=frozenset(data["known"]),
        tuned_keys=frozenset(result["file_key"] for result in results if result["tactic"] is not None),
        failed=tuple(
            Failure(result["op"], result["bucket"], result["failed"])
            for result in results
            if result["tactic"] is None
        ),
        failed_tactics=sum(len(result["failed"]) for result in results),
        seconds=data["prepare_seconds"] + data["search_seconds"],
        measured={
            result["file_key"]: {name: result[name] for name in _MEASURED}
            for result in results
            if result["tactic"] is not None
        },
        races={result["file_key"]: result["race"] for result in results if result["race"]},
    )
