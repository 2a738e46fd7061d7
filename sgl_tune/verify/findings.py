"""What `verify` can say: verdicts on files, and findings that each carry a code, a sentence and a way out."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple


class Severity(str, Enum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Verdict(str, Enum):
    """What the next server start does with a file."""

    HIT = "hit"
    PARTIAL = "partial"
    IGNORED = "ignored"
    REPLACED = "replaced"
    DELETED = "deleted"
    CRASH = "crash"
    MISSING = "missing"


# What ends or fails whichever server reads the file, so that `prune --unusable` removes it.
UNUSABLE = frozenset(
    (
        "not-text",
        "not-json",
        "not-an-object",
        "number-too-long",
        "nested-too-deep",
        "entry-kills-loader",
        "records-not-an-object",
        "metadata-not-an-object",
        "tactic-unusable",
    )
)

# Every code and its usual severity; docs/findings.md explains each.
CODES: dict[str, Severity] = {
    "not-text": Severity.ERROR,
    "not-json": Severity.ERROR,
    "not-an-object": Severity.ERROR,
    "number-too-long": Severity.ERROR,
    "nested-too-deep": Severity.ERROR,
    "entry-kills-loader": Severity.ERROR,
    "records-not-an-object": Severity.ERROR,
    "metadata-not-an-object": Severity.ERROR,
    "crash-elsewhere": Severity.ERROR,
    "other-environment": Severity.ERROR,
    "unknown-environment": Severity.ERROR,
    "other-folder": Severity.ERROR,
    "nearest-key": Severity.INFO,
    "no-environment": Severity.WARNING,
    "target-unknown": Severity.INFO,
    "flashinfer-unknown": Severity.INFO,
    "other-driver": Severity.INFO,
    "tactic-unusable": Severity.ERROR,
    "policy-misses": Severity.WARNING,
    "runner-mismatch": Severity.WARNING,
    "runner-exchanged": Severity.ERROR,
    "key-unreadable": Severity.WARNING,
    "value-malformed": Severity.WARNING,
    "cudnn-index": Severity.WARNING,
    "generation-wrong": Severity.WARNING,
    "generation-missing": Severity.INFO,
    "duplicate-key": Severity.WARNING,
    "no-entries": Severity.WARNING,
    "other-options": Severity.WARNING,
    "unused-entries": Severity.INFO,
    "lookup-cost": Severity.WARNING,
    "keys-missing": Severity.WARNING,
    "ranks-differ": Severity.ERROR,
    "vllm-ranks-differ": Severity.WARNING,
    "vllm-one-rank": Severity.WARNING,
    "rank-missing": Severity.ERROR,
    "rank-unexpected": Severity.INFO,
    "tunes-nothing": Severity.INFO,
    "not-planned": Severity.WARNING,
    "server-ends": Severity.ERROR,
    "server-ignores": Severity.ERROR,
    "server-profiles": Severity.ERROR,
    "not-a-file": Severity.ERROR,
    "is-a-link": Severity.INFO,
    "not-readable": Severity.ERROR,
    "not-writable": Severity.ERROR,
    "owner-only": Severity.INFO,
    "leftover-temporary": Severity.INFO,
    "interrupted-write": Severity.WARNING,
    "old-runs": Severity.INFO,
    "stale-sibling": Severity.INFO,
    "changed-since-written": Severity.INFO,
    "manifest-broken": Severity.WARNING,
    "replay-fails": Severity.ERROR,
    "stale-choice": Severity.WARNING,
    "faded-choice": Severity.INFO,
    "other-clocks": Severity.INFO,
    "managed-entry-invalid": Severity.WARNING,
    "store-moved": Severity.ERROR,
    "store-stale": Severity.WARNING,
    "store-half-written": Severity.WARNING,
    "store-kills-start": Severity.ERROR,
    "store-not-writable": Severity.ERROR,
    "store-other-version": Severity.INFO,
    "store-other-arch": Severity.INFO,
    "store-other-python": Severity.INFO,
    "store-offered": Severity.INFO,
    "store-odd-file": Severity.WARNING,
}


class Finding(NamedTuple):
    """`where` is the folder or the deployment that it is about; empty in a file's own report."""

    code: str
    severity: Severity
    where: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "remedy": self.remedy,
            **({"where": self.where} if self.where else {}),
        }


def finding(
    code: str, message: str, remedy: str, severity: Severity | None = None, where: Path | str = ""
) -> Finding:
    return Finding(code, severity or CODES[code], str(where), message, remedy)


class FileReport(NamedTuple):
    path: Path
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    store: str = "tactics"

    def to_json(self) -> dict[str, Any]:
        return {
            "store": self.store,
            "path": str(self.path),
            "verdict": self.verdict.value,
            "findings": [found.to_json() for found in self.findings],
        }


class VerifyReport(NamedTuple):
    """`findings` are those of whole caches and of the deployment, not of one file."""

    files: tuple[FileReport, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "files": [file.to_json() for file in self.files],
            "findings": [found.to_json() for found in self.findings],
        }

    def ok(self, strict: bool = False) -> bool:
        bad = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
        return not any(found.severity in bad for found in self.all_findings())

    def all_findings(self) -> Iterable[Finding]:
        yield from self.findings
        for file in self.files:
            yield from file.findings
