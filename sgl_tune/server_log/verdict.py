"""What happened to a server by its log: the verdict, the cause, and changes that would have helped; printed,
too."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from textwrap import shorten
from typing import Any, Literal

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.server_log.cause import Cause, cause_of, fraction_of, least_fraction, missing_of
from sgl_tune.server_log.ends import MEMORY, REFUSED
from sgl_tune.server_log.log import ServerLog
from sgl_tune.server_log.rank_log import RankLog
from sgl_tune.server_log.remedies import LogRemedy, remedies_of
from sgl_tune.units import memory_bytes

LogVerdict = Literal["oom", "refused", "failed", "ready", "unfinished"]
_RANK = re.compile(r"\[(?:[^\]]{0,60} )?[Rr]ank ?(\d{1,5})\]")
_UNKNOWN = "in a phase that the log does not show"
_MODEL = re.compile(r"model_path'?[=:] ?'([^']{1,300})'")
_MOST_RANKS, _MOST_LETTERS = 16, 200
_STYLES = {"ready": "green", "unfinished": "yellow"}


@dataclass(frozen=True, slots=True)
class Outcome:
    log: ServerLog
    cause: Cause | None
    remedies: tuple[LogRemedy, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> LogVerdict:
        if self.log.death is None:
            return "ready" if self.log.is_ready else "unfinished"
        level = self.log.death.kind.level
        return "oom" if level == MEMORY else "refused" if level == REFUSED else "failed"

    @property
    def rank(self) -> str:
        """Return the rank that died, else its pod, or "" if the log shows neither."""
        death, lead = self.log.death, self.log.lead
        if self.verdict == "failed" and death and not death.rank and len(self.log.ranks) > 1:
            return death.source
        return lead.name if lead.name != "the server" else ""

    @property
    def failed_in(self) -> str:
        """Return the phase of the death, or "" if the log shows none."""
        death, lead = self.log.death, self.log.lead
        is_of_death = death and (self.log.oom or lead.phase == "setup" or death.phase == "weights")
        phase = death.phase if death and is_of_death else lead.last_phase
        phase = "serving" if phase == "setup" and self.log.is_ready else phase
        return {"setup": "", "ready": "serving"}.get(phase, phase)

    @property
    def model(self) -> str:
        found = _MODEL.search(self.log.server_args or "")
        return found[1] if found else ""

    @property
    def headline(self) -> str:
        oom, lead = self.log.oom, self.log.lead
        who = self.rank or (f"GPU {oom.gpu}" if oom and oom.gpu and lead not in self.log.ranks else "")
        who = f" on {who}" if who else ""
        if self.verdict in ("oom", "refused"):
            how = "OUT OF MEMORY" if self.verdict == "oom" else "REFUSED by SGLang"
            return f"{how} {self._place}{who}{self._short_by}"
        if self.log.death:
            how = "REFUSED by SGLang" if self.log.death.kind.name == "arguments" else "DIED"
            return f"{how} {self._place}{who}: {self.cause.what if self.cause else ''}{self._behind}"
        if self.verdict == "ready":
            return "READY: the log shows a server that started, and no death"
        what = "no ready server" if lead.phase != "warm-up request" else "no line that says ready"
        whose = who if len({rank.source for rank in self.log.ranks}) > 1 else ""
        return f"UNFINISHED: the log shows no death and {what}; it ends {placed(lead.last_phase)}{whose}"

    @property
    def _place(self) -> str:
        """Return the place of the death as text, such as `in weights`."""
        if self.failed_in:
            return placed(self.failed_in)
        death = self.log.death
        is_known = self.log.server_args is not None or (death and death.kind.name == "arguments")
        is_early = is_known and self.verdict == "failed"
        return placed("setup") if is_early else _UNKNOWN

    @property
    def _behind(self) -> str:
        """Return, as text, which rank came least far when communication was lost, or else which waited."""
        ranks, death = sorted(self.log.ranks, key=lambda rank: len(rank.steps)), self.log.death
        if death is None or death.kind.name != "NCCL":
            return ""
        if len(ranks) > 1 and len(ranks[0].steps) < len(ranks[1].steps):
            return f"; {ranks[0].name} came least far"
        waited = _RANK.search(death.text)
        return f"; rank {waited[1]} waited" if waited and "timeout" in death.text else ""

    @property
    def _short_by(self) -> str:
        log, numbers = self.log, self.log.oom.numbers if self.log.oom else None
        if self.verdict == "refused":
            least, fraction = least_fraction(log), fraction_of(log)
            short = (least - fraction) * (log.lead.baseline_bytes or 0) if least and fraction else 0
            return f": even an empty KV cache would need {memory_bytes(short)} more" if short > 0 else ""
        if numbers is None:
            return ": the log does not show how much was short"
        tried, free = memory_bytes(numbers.tried_bytes), memory_bytes(numbers.free_bytes)
        if not numbers.shows_free:
            return f": {tried} did not fit"
        if numbers.tried_bytes <= numbers.free_bytes:
            return f": {tried} did not fit, though {free} were free"
        at = "at least " if self.failed_in == "weights" else ""  # the rest of the model was still to come
        return f": {at}{memory_bytes(numbers.tried_bytes - numbers.free_bytes)} short"

    def to_json(self) -> dict[str, Any]:
        log, lead, death = self.log, self.log.lead, self.log.death
        cause = None
        if self.cause is not None:
            way_out = self.remedies[0].line() if self.remedies else ""
            cause = {"kind": death.kind.name if death else "", "what": self.cause.what,
                     "shown_by": self.cause.shown_by, "way_out": way_out}  # fmt: skip
        return {
            "title": self.model or None,
            "verdict": self.verdict,
            "source": "log",
            "cause": cause,
            "rank_name": lead.rank or None if self.rank else None,
            "pod": lead.source or None,
            "failed_in": self.failed_in or None if death else None,
            "last_phase": "" if death and self._place == _UNKNOWN else lead.last_phase,
            "failure": death.text if death else None,
            "line": death.line if death else None,
            "oom": self._oom_json(),
            "remedies": [remedy.to_json() for remedy in self.remedies],
            "phases": [asdict(step) for step in lead.steps],
            "ranks": [_rank_json(rank) for rank in log.ranks],
            "findings": [finding.to_json(times) for finding, times in log.findings.items()],
            "notes": list(self.notes),
            "starts": log.starts,
        }

    def _oom_json(self) -> dict[str, Any] | None:
        oom = self.log.oom
        if oom is None:
            return None
        numbers, total = oom.numbers, oom.numbers.total_bytes if oom.numbers else 0
        free = numbers if numbers and numbers.shows_free else None
        return {
            "phase": self.failed_in or None, "where": oom.where or None, "by_driver": numbers is None,
            "tried_bytes": numbers.tried_bytes if numbers else None,
            "free_bytes": free.free_bytes if free else None, "total_bytes": total or None,
            "allocated_bytes": numbers.allocated_bytes or None if numbers else None,
            "missing_bytes": max(0, free.tried_bytes - free.free_bytes) if free else None,
            "remedies": [remedy.to_json() for remedy in self.remedies],
        }  # fmt: skip


def outcome_of(log: ServerLog) -> Outcome:
    notes = [f"the log has {what}" for what in missing_of(log)] if log.ended_by_memory else []
    if log.starts > 1:
        which = "this is the last" if log.is_last else "this is the last one that ended"
        notes.append(f"the log holds {log.starts} starts of a server: {which}")
    death, cause = log.death, cause_of(log)
    if death is not None and not log.ended_by_memory:
        cause = Cause(death.kind.what, death.text[:400])
    return Outcome(log, cause, remedies_of(log, cause), tuple(notes))


def placed(phase: str) -> str:
    if phase == "setup":
        return "before the communicator"
    if phase == "serving":
        return "while serving"
    return phase if phase.startswith("after") else f"in {phase}"


def _rank_json(rank: RankLog) -> dict[str, Any]:
    return {
        "source": rank.source, "rank": rank.rank, "last_phase": rank.last_phase,
        "baseline_bytes": rank.baseline_bytes, "pool_free_bytes": rank.free_after("kv pool"),
        "least_free_bytes": rank.least_free_bytes, "kv_tokens": rank.kv_tokens,
    }  # fmt: skip


def show_outcome(out: Output, found: Outcome) -> None:
    out.line(found.headline, style=_STYLES.get(found.verdict, "red"))
    for title, lines in _parts(found):
        if title:
            out.line()
            out.line(title, style="bold")
        for line in lines:
            out.line(line, indent=2)
    out.line()
    if not found.log.death:
        _show_phases(out, found.log.lead)
    if len(found.log.ranks) > 1:
        _show_ranks(out, found)
    if not found.log.death and found.log.lead.steps:
        out.line("sgl-tune start-report shows where the seconds went", style="dim")
    for note in found.notes:
        out.line(f"- {note}", style="dim", indent=2)


def _parts(found: Outcome) -> Iterator[tuple[str, list[str]]]:
    """Yield titles with their lines, in the order in which a reader needs them."""
    yield "", [*evidence(found)]
    if found.cause is not None and found.verdict != "failed":
        yield f"Why: {found.cause.what}", [found.cause.shown_by] if found.cause.shown_by else []
    if found.remedies:
        title = "What would have helped, cheapest first" if found.log.ended_by_memory else "What to do"
        yield title, [f"{number}. {remedy.line()}" for number, remedy in enumerate(found.remedies, 1)]
    if others := [one.line(times) for one, times in found.log.findings.items() if one.kind != "NCCL"]:
        yield "Also in this log", others


def evidence(found: Outcome) -> Iterator[str]:
    death = found.log.death
    numbers = death.numbers if death else None
    if numbers is not None and numbers.shows_free:
        tried, free, total, allocated = map(memory_bytes, astuple(numbers)[:4])
        of, by_torch = f" of {total}" if numbers.total_bytes else "", f", {allocated} allocated by torch"
        yield f"tried {tried}, {free} free{of}{by_torch if numbers.allocated_bytes else ''}"
    if death is not None:
        yield from ([f"at {death.where}"] if death.where else [])
        text = f": {shorten(death.text, _MOST_LETTERS, placeholder=' ...')}"
        yield f"line {death.line:,} of the log{'' if numbers and numbers.shows_free else text}"
    told = (one.text for one in found.log.findings if one.kind == "NCCL")
    yield from (text for text in told if death is None or death.text not in text)
    if found.model:
        yield f"model: {found.model}"


def _show_phases(out: Output, rank: RankLog) -> None:
    """Print what each phase took, by SGLang's own lines."""
    steps = []
    for step in rank.steps:
        took = "-" if step.seconds is None else f"{step.seconds:.1f} s"
        steps.append((step.phase, took, _amount(step.used_bytes), _amount(step.free_bytes)))
    _table(out, ("PHASE", "TOOK", "USED", "FREE AFTER"), steps, 1)


def _show_ranks(out: Output, found: Outcome) -> None:
    ranks, names = found.log.ranks, ("RANK", "LAST PHASE", "FREE BEFORE", "AFTER POOL", "LEAST")
    rows = []
    for rank in ranks[:_MOST_RANKS]:
        free = (rank.baseline_bytes, rank.free_after("kv pool"), rank.least_free_bytes)
        rows.append((rank.name, rank.last_phase, *map(_amount, free)))
    if {row[1:] for row in rows} == {(ranks[0].last_phase, "-", "-", "-")}:
        return out.line(f"all {len(ranks):,} ranks end {placed(ranks[0].last_phase)}")
    _table(out, names, rows, 2)
    if len(ranks) > _MOST_RANKS:
        out.line(f"and {len(ranks) - _MOST_RANKS:,} more ranks (--format json)", style="dim")
    out.line()


def _table(out: Output, names: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> None:
    """Print the columns that hold anything. The first `texts` of them hold words."""
    held = [i for i in range(len(names)) if i < texts or any(row[i] != "-" for row in rows)]
    columns = [Column(names[i], right=i >= texts, path=names[i] == "RANK") for i in held]
    if rows:
        out.table(columns, [[row[i] for i in held] for row in rows])


def _amount(of: int | None) -> str:
    return "-" if of is None else memory_bytes(of)
