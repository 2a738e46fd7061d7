"""The results of `verify`: a verdict per file, and findings with a code, a sentence and a remedy."""

from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from sgl_tune.cache.record import WAY_OUT, CacheFile


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
    UNKNOWN = "unknown"


class Row(NamedTuple):
    """The defaults of a code. `in_part`: lookups in such a file miss, so that its verdict is `partial`."""

    severity: Severity
    remedy: str = ""
    in_part: bool = False


INFO, WARNING, ERROR = Severity
_AGAIN = "warm the cache again"
_NOTHING = "nothing to do"
_STALE = "sgl-tune prune --stale"
_READ = "run as a user who may, repair the mode, or put a regular file in its place"
_DEFAULT = "remove the cache and warm it again: `warm` keeps the entries that it finds"
_PRUNE = "prune it if nobody else needs it"

# All codes; docs/findings.md explains each.
CODES: dict[str, Row] = {
    "not-text": Row(ERROR, WAY_OUT),
    "not-json": Row(ERROR, WAY_OUT),
    "not-an-object": Row(ERROR, WAY_OUT),
    "number-too-long": Row(ERROR, WAY_OUT),
    "nested-too-deep": Row(ERROR, WAY_OUT),
    "entry-kills-loader": Row(ERROR, WAY_OUT),
    "records-not-an-object": Row(ERROR, WAY_OUT),
    "metadata-not-an-object": Row(ERROR, WAY_OUT),
    "crash-elsewhere": Row(ERROR, WAY_OUT),
    "other-environment": Row(ERROR, "warm for this environment; remove the file if nobody else needs it"),
    "unknown-environment": Row(ERROR, "warm again where the versions are known"),
    "other-folder": Row(ERROR),
    "nearest-key": Row(INFO, "name those flags if the server has them; else sgl-tune warm fills this key"),
    "no-environment": Row(WARNING, "warm again: tactics of another FlashInfer or GPU may be slow, or fail"),
    "target-unknown": Row(
        INFO, "--target env.json, from `sgl-tune env --format json` on the machine that serves"
    ),
    "target-silent": Row(ERROR),
    "flashinfer-unknown": Row(INFO, "a newer sgl-tune may know it; `warm` proves its files"),
    "other-driver": Row(INFO, "warm again if the start shows slower kernels"),
    "tactic-unusable": Row(ERROR, WAY_OUT, in_part=True),
    "policy-misses": Row(WARNING, _AGAIN, in_part=True),
    "runner-mismatch": Row(WARNING, _AGAIN, in_part=True),
    "runner-exchanged": Row(ERROR, _AGAIN),
    "key-unreadable": Row(WARNING, "remove it: lookups that miss take longer with it"),
    "value-malformed": Row(WARNING, _AGAIN),
    "cudnn-index": Row(WARNING, _AGAIN, in_part=True),
    "generation-wrong": Row(WARNING, "warm it again if you did not mean to edit it"),
    "generation-missing": Row(INFO, _NOTHING),
    "duplicate-key": Row(WARNING, _AGAIN),
    "no-entries": Row(WARNING, _AGAIN, in_part=True),
    "other-options": Row(WARNING),
    "unused-entries": Row(INFO, "nothing to do: another deployment may use them"),
    "lookup-cost": Row(WARNING, "warm into an empty cache, so that no unused entries stay"),
    "keys-missing": Row(WARNING, in_part=True),
    "ranks-differ": Row(ERROR, "copy one rank's file over the others of its group, or warm again"),
    "vllm-ranks-differ": Row(WARNING, "export it anew for every rank, or delete all: vLLM tunes again"),
    "vllm-one-rank": Row(WARNING, "sgl-tune export --to flashinfer-store"),
    "rank-missing": Row(ERROR),
    "rank-unexpected": Row(INFO, "remove them, unless another node reads this folder too"),
    "cache-away": Row(ERROR),
    "cache-not-kept": Row(ERROR),
    "tunes-nothing": Row(INFO, _NOTHING),
    "not-planned": Row(WARNING),
    "server-ends": Row(ERROR),
    "server-ignores": Row(ERROR),
    "server-profiles": Row(ERROR),
    "not-a-file": Row(ERROR, "remove it"),
    "is-a-link": Row(INFO, "put the file itself in its place"),
    "not-readable": Row(ERROR, _READ),
    "not-writable": Row(ERROR, "mount it writable, or let the server's user own it"),
    "owner-only": Row(INFO, "verify with --as-user NAME, or chmod a+r, if the server does not run as root"),
    "leftover-temporary": Row(INFO, _STALE),
    "interrupted-write": Row(WARNING, "the next `sgl-tune warm` or `prune` finishes it"),
    "old-runs": Row(INFO, _STALE),
    "stale-sibling": Row(INFO, _STALE),
    "changed-since-written": Row(INFO, "nothing to do if a server tuned on and saved"),
    "manifest-broken": Row(WARNING, "delete it"),
    "replay-fails": Row(ERROR, _DEFAULT),
    "stale-choice": Row(ERROR, _DEFAULT),
    "faded-choice": Row(INFO, _DEFAULT),
    "other-clocks": Row(INFO, "nothing to do where clocks or load differ: choices were timed side by side"),
    "managed-entry-invalid": Row(WARNING, "delete it: the server measures and writes it again"),
    "store-moved": Row(ERROR),
    "store-stale": Row(WARNING),
    "store-half-written": Row(WARNING),
    "store-kills-start": Row(ERROR),
    "store-not-writable": Row(ERROR),
    "store-other-version": Row(INFO, _PRUNE),
    "store-other-arch": Row(INFO, _PRUNE),
    "store-other-python": Row(INFO, _PRUNE),
    "store-offered": Row(INFO),
    "store-odd-file": Row(WARNING, "remove it"),
}
# Codes of files that make every server that reads them fail; `prune --unusable` removes the files.
UNUSABLE = frozenset(code for code, row in CODES.items() if row.remedy == WAY_OUT)


class Finding(NamedTuple):
    """One result of `verify`. `where`: the folder or deployment that it is about; "" in a file's own
    report."""

    code: str
    severity: Severity
    where: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message

    def to_json(self) -> dict[str, str]:
        where = {"where": self.where} if self.where else {}
        told = {"code": self.code, "severity": self.severity.value, "message": self.message}
        return {**told, "remedy": self.remedy, **where}


def finding(
    code: str, message: str, remedy: str = "", severity: Severity | None = None, where: Path | str = ""
) -> Finding:
    """Return a finding. The code gives the remedy and the severity if the caller does not."""
    usual = CODES[code]
    return Finding(code, severity or usual.severity, str(where), message, remedy or usual.remedy)


class FileReport(NamedTuple):
    """The verdict on a file. `file`: its content until ranks are compared; None if the loader cannot parse
    it. `unread`: it was not opened here. `blocked`: the server's user cannot read it."""

    path: Path
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    store: str = "tactics"
    file: CacheFile | None = None
    unread: bool = False
    blocked: bool = False
    only_root: bool = False

    @property
    def served(self) -> CacheFile | None:
        """Return the file as the server's ranks see it."""
        return None if self.blocked else self.file

    def to_json(self) -> dict[str, Any]:
        findings = [found.to_json() for found in self.findings]
        told = {"store": self.store, "path": str(self.path), "verdict": self.verdict.value}
        return {**told, "findings": findings}


class VerifyReport(NamedTuple):
    """The whole result. `findings`: those of whole caches and of the deployment, not of one file."""

    files: tuple[FileReport, ...]
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "files": [file.to_json() for file in self.files],
            "findings": [found.to_json() for found in self.findings],
        }

    def remedied(self, advice: str, command: str) -> "VerifyReport":
        """Return the report with this command in place of the advice to write it."""

        def paste(found: Iterable[Finding]) -> tuple[Finding, ...]:
            return tuple(one._replace(remedy=command) if one.remedy == advice else one for one in found)

        files = (file._replace(findings=paste(file.findings)) for file in self.files)
        return VerifyReport(tuple(files), paste(self.findings))

    def ok(self, strict: bool = False) -> bool:
        bad = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
        return not any(found.severity in bad for found in self.all_findings())

    def all_findings(self) -> Iterable[Finding]:
        yield from self.findings
        for file in self.files:
            yield from file.findings
