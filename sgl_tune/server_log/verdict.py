"""What became of a server, by its log: the verdict, the cause, and the changes that would have helped."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sgl_tune.server_log.cause import cause_of, missing_of
from sgl_tune.server_log.rank_log import Cause, LoggedOom, RankLog, ServerLog
from sgl_tune.server_log.remedies import LogRemedy, remedies_of

LogVerdict = Literal["oom", "refused", "failed", "ready", "unfinished"]
_MODEL = re.compile(r"model_path'?[=:] ?'([^']{1,300})'")
_SERVING = "serving"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`line`: where the log shows the death. `failed_in`: the phase, "" where none is shown."""

    log: ServerLog
    verdict: LogVerdict
    cause: Cause | None
    kind: str
    failed_in: str
    failure: str
    line: int
    remedies: tuple[LogRemedy, ...]
    notes: tuple[str, ...]

    @property
    def is_dead(self) -> bool:
        return self.verdict not in ("ready", "unfinished")

    @property
    def names_rank(self) -> bool:
        """Whether the log shows which rank it was: a line of the server's own process may not."""
        end = self.log.end
        return self.verdict != "failed" or end is None or bool(end.rank) or len(self.log.ranks) < 2

    @property
    def place(self) -> str:
        """`in weights`."""
        if self.failed_in:
            return self.failed_in if self.failed_in.startswith("after the") else f"in {self.failed_in}"
        is_early = self.log.server_args is not None and self.verdict == "failed"
        return "before the communicator" if is_early else "in a phase that the log does not show"

    @property
    def model(self) -> str:
        found = _MODEL.search(self.log.server_args or "")
        return found[1] if found else ""

    @property
    def missing_bytes(self) -> int | None:
        numbers = self.log.oom.numbers if self.log.oom else None
        return max(0, numbers.tried_bytes - numbers.free_bytes) if numbers else None

    def to_json(self) -> dict[str, Any]:
        log, lead = self.log, self.log.lead
        return {
            "title": self.model or None,
            "verdict": self.verdict,
            "source": "log",
            "cause": {"kind": self.kind, **asdict(self.cause)} if self.cause else None,
            "rank_name": (lead.rank or None) if self.names_rank else None,
            "pod": lead.source or None,
            "failed_in": self.failed_in or None,
            "last_phase": last_phase(lead),
            "failure": self.failure or None,
            "line": self.line or None,
            "oom": self._oom_json(log.oom),
            "remedies": [asdict(remedy) for remedy in self.remedies],
            "phases": [asdict(step) for step in lead.steps],
            "ranks": [_rank_json(rank) for rank in log.ranks],
            "notes": list(self.notes),
            "starts": log.starts,
        }

    def _oom_json(self, oom: LoggedOom | None) -> dict[str, Any] | None:
        if oom is None or self.verdict != "oom":
            return None
        numbers = oom.numbers
        return {
            "phase": self.failed_in or None,
            "tried_bytes": numbers.tried_bytes if numbers else None,
            "free_bytes": numbers.free_bytes if numbers and numbers.total_bytes else None,
            "total_bytes": numbers.total_bytes or None if numbers else None,
            "allocated_bytes": numbers.allocated_bytes or None if numbers else None,
            "missing_bytes": self.missing_bytes if numbers and numbers.total_bytes else None,
            "where": oom.where or None,
            "by_driver": numbers is None,
            "remedies": [asdict(remedy) for remedy in self.remedies],
        }


def outcome_of(log: ServerLog) -> Outcome:
    """Of a death by memory and another one, memory is the cause: what the driver refuses ends the rest."""
    notes = [f"the log has {what}" for what in missing_of(log)] if log.ended_by_memory else []
    if log.starts > 1:
        notes.append(f"{log.path} holds {log.starts} starts of a server: this is the last")
    cause = cause_of(log)
    verdict, kind, failure, line, phase = _end(log)
    if verdict == "failed" and log.end is not None:
        cause = Cause(log.end.kind.what, log.end.text[:400], log.end.kind.way_out)
    remedies = remedies_of(log, cause) if verdict != "failed" else ()
    if not remedies and cause is not None:
        remedies = (LogRemedy(cause.way_out),)
    return Outcome(log, verdict, cause, kind, phase, failure, line, remedies, tuple(notes))


def last_phase(rank: RankLog) -> str:
    """The phase that goes on where the log ends."""
    return "after the scheduler was ready" if rank.phase == "ready" else rank.phase


def _end(log: ServerLog) -> tuple[LogVerdict, str, str, int, str]:
    phase = _shown(_SERVING if log.is_ready else last_phase(log.lead))
    if log.oom is not None:
        where = _shown(_SERVING if log.oom.phase == "ready" else log.oom.phase)
        return "oom", "out of memory", log.oom.message, log.oom.line, where
    if log.refusal:
        return "refused", "refused", log.refusal, log.refused_at, phase
    if log.end is not None:
        return "failed", log.end.kind.name, log.end.text, log.end.line, phase
    return "ready" if log.is_ready else "unfinished", "", "", 0, ""


def _shown(phase: str) -> str:
    return "" if phase == "setup" else phase


def _rank_json(rank: RankLog) -> dict[str, Any]:
    return {
        "source": rank.source,
        "rank": rank.rank,
        "last_phase": last_phase(rank),
        "baseline_bytes": rank.baseline_bytes,
        "pool_free_bytes": rank.free_after("kv pool"),
        "least_free_bytes": rank.least_free_bytes,
        "kv_tokens": rank.kv_tokens,
    }
