"""What workers that search together must agree on. It is checked first, so that no worker waits forever."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.autotune.candidate import Candidate
from runtime.autotune.errors import WorkersDisagree
from runtime.autotune.search import Screened

_WAY_OUT = "all workers must run the same deployment, versions and GPU model, from the same cache file"


@dataclass(frozen=True, slots=True)
class Terms:
    """One worker's view of a call: the keys it looks up, those without an entry, and its environment."""

    op: str
    keys: tuple[str, ...]
    missing: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What one worker, or all of them, found out about one bucket."""

    candidates: tuple[Candidate, ...]
    screened: Mapping[Candidate, Screened]
    failures: Mapping[Candidate, str]
    launches: int


def check_terms(terms: Sequence[Terms]) -> None:
    """Refuse terms that differ. Every worker sees all terms, so all workers raise the same error."""
    first = terms[0]
    for worker, other in enumerate(terms):
        if other.op != first.op:
            raise _disagreement("op", first.op, worker, other.op)
        for name, value in first.environment.items():
            if other.environment.get(name) != value:
                raise _disagreement(name, value, worker, other.environment.get(name))
        _same_entries(f"the entries that {first.op} asks for", first.keys, worker, other.keys)
        _same_entries(f"the entries that {first.op} still lacks", first.missing, worker, other.missing)


def _same_entries(what: str, mine: Sequence[str], worker: int, theirs: Sequence[str]) -> None:
    if mine != theirs:
        odd = min(set(mine) ^ set(theirs))
        has, lacks = (odd, "not") if odd in mine else ("not", odd)
        raise _disagreement(what, has, worker, lacks)


def merge_reports(where: str, reports: Sequence[BucketReport]) -> BucketReport:
    first = reports[0]
    for worker, report in enumerate(reports):
        if report.candidates != first.candidates:
            mine, theirs = len(first.candidates), len(report.candidates)
            raise _disagreement(f"the tactics of {where}", f"{mine} of them", worker, f"{theirs} or others")
    return BucketReport(
        first.candidates,
        {candidate: seen for report in reports for candidate, seen in report.screened.items()},
        {candidate: reason for report in reports for candidate, reason in report.failures.items()},
        sum(report.launches for report in reports),
    )


def _disagreement(what: str, mine: Any, worker: int, theirs: Any) -> WorkersDisagree:
    return WorkersDisagree(f"workers 0 and {worker} differ in {what} ({mine} and {theirs}): {_WAY_OUT}")
