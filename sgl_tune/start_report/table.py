"""Print a start's report on a terminal, or as Markdown for a pull request or an issue; compared with an
earlier start, with what is gone, what is new, and whether the predicted saving came."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.cli.table import Column
from sgl_tune.server_log.start import SEVERAL_CLOCKS
from sgl_tune.server_log.verdict import evidence
from sgl_tune.start_report.report import StartReport, rounded
from sgl_tune.start_report.timeline import PHASES, SHOWN, UNEXPLAINED
from sgl_tune.units import count, human_bytes, some
from sgl_tune.web_page.render import rendered

_BAR = 24
_MOST_WORDS, _MOST_LETTERS = 16, 100
_RIGHT = ("from", "took", "saves", "was", "is", "difference")
_PHASES = ("phase", "from", "took", "", "store", "hit", "saves")
_AGAINST = ("phase", "was", "is", "difference")
_PAGE = Path(__file__).parent / "page"
_CHART = ("The start, second by second", "Point at a span, or walk through them with the Tab key.")


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
        seconds = {
            "before_seconds": self.before.wall_seconds,
            "saved_seconds": saved,
            "predicted_seconds": self.before.saves_seconds,
        }
        return {
            **rounded(seconds),
            "not_compiled_again": [module for module in self.before.compiled if module not in compiled],
            "changes": [
                rounded({"phase": name, "before": old, "after": new, "difference": new - old})
                for name, (old, new) in self.changes.items()
            ],
        }


def _seconds(report: StartReport) -> dict[str, float]:
    times = {phase.name: phase.seconds for phase in report.phases}
    return {**times, UNEXPLAINED: report.unexplained_seconds}


def headline(report: StartReport) -> str:
    wall = f"{report.wall_seconds:.1f} s"
    if not report.start.is_timed:
        if report.start.is_mixed:
            return f"no seconds are known: {SEVERAL_CLOCKS}"
        more = "" if report.failure else ": docker logs -t and kubectl logs --timestamps add them"
        return f"no line has a time{more}"
    if not report.ready:
        ended = f"its command ended {_how(report.exit_code)}" if report.exit_code is not None else "stands"
        where = {**SHOWN, UNEXPLAINED: "a phase that no line names"}.get(report.stands_in, report.stands_in)
        after = f"after {wall}" if report.wall_seconds else "in the one second that the log shows"
        if report.failure and report.outcome.failed_in not in ("", report.stands_in):
            return f"not ready {after}"  # the line above names the phase
        return f"not ready {after}: {'failed' if report.failure else ended} in {where}"
    spared = report.saves_seconds
    saved = f"; full stores would have saved {spared:.1f} s" if spared >= 0.05 else ""
    return f"ready after {wall}{saved}"


def show_report(out: Output, report: StartReport) -> None:
    if report.outcome.log.death:
        out.line(report.outcome.headline, style="red")
        for line in _failure(report):
            out.line(line, indent=2)
    out.line(headline(report), style="bold")
    for note in notes(report):
        out.line(f"- {note}", style="dim", indent=2)
    out.line()
    if report.phases:
        out.table(_columns(_PHASES), _rows(report))
    for title, lines in _parts(report):
        out.line(title)
        for line in lines:
            out.line(line, indent=2)


def show_against(out: Output, found: Against) -> None:
    out.line()
    out.line(found.headline, style="bold")
    out.table(_columns(_AGAINST), [(SHOWN.get(name, name), *times) for name, *times in found.rows])


def notes(report: StartReport) -> Iterator[str]:
    if report.starts > 1:
        pods = ", ".join(sorted({speaker.source for speaker in report.start.last_words} - {""}))
        of = f", of {pods}" if pods else ""
        yield f"start {report.number} of {report.starts} in this log{of}: --start N shows another"
    if report.ranks > 1:
        yield f"{report.ranks} ranks: a second counts for the rank that is furthest behind"
    yield from (note for note in report.start.notes if note != SEVERAL_CLOCKS)


def _parts(report: StartReport) -> Iterator[tuple[str, list[str]]]:
    """Yield what stands below the table: a line, and the lines that belong to it."""
    wall, unexplained = report.wall_seconds, report.unexplained_seconds
    share = 100 * unexplained / wall if wall else 0.0
    if report.start.is_timed:
        yield f"unexplained: {unexplained:.1f} s of {wall:.1f} s, {share:.0f} %", []
    for phase in report.phases:
        if phase.cause != PHASES[phase.name].spent_on:
            spared = [f"spared by: {phase.remedy}"] if phase.remedy and phase.hit is not True else []
            yield f"{SHOWN.get(phase.name, phase.name)}: {phase.cause}", spared
    for file in report.tactics.files if report.tactics else ():
        yield file.line(), []
    for one in report.written:
        written = f"{count(one.files, 'file')} written, {human_bytes(one.bytes)}, in {one.folder}"
        yield f"{one.store}: {written}", []
    found = report.start.findings.items()  # a death's words of NCCL stand above
    yield from ((one.line(times), []) for one, times in found if not (report.failure and one.kind == "NCCL"))
    silence = report.start.silence
    if silence and not report.ready and report.start.is_timed and silence.at > max(10, wall / 2):
        yield f"longest silence: {silence.at:.1f} s, then: {silence.text[:_MOST_LETTERS]}", []
    if report.last_words:
        yield "last line of each rank, the longest silent first", [*_last_words(report)][:_MOST_WORDS]


def _last_words(report: StartReport) -> Iterator[str]:
    """Yield the ranks' last lines. Ranks that fell silent together with the same words share a line."""
    said: dict[tuple[str, str], list[str]] = {}
    for word in report.last_words:
        silence = report.wall_seconds - word.at
        silent = f"silent for the last {silence:.1f} s" if silence >= 0.05 else "the last to speak"
        said.setdefault((silent, word.text[:_MOST_LETTERS]), []).append(word.rank)
    for (silent, text), ranks in said.items():
        yield f"{some(ranks, 1)}: {silent}: {text}"


def _failure(report: StartReport) -> Iterator[str]:
    yield from evidence(report.outcome)
    yield from (f"to do: {remedy.line()}" for remedy in report.outcome.remedies)


def _rows(report: StartReport) -> Iterator[tuple[str, ...]]:
    for phase in report.phases:
        bar = "#" * round(_BAR * phase.seconds / report.wall_seconds) if report.wall_seconds else ""
        hit = {True: "yes", False: "no", None: "unknown"}[phase.hit] if phase.store else "-"
        saves = f"{phase.saves_seconds:.1f} s" if phase.saves_seconds else "-"
        times = f"{phase.begins:.1f} s", f"{phase.seconds:.1f} s"
        yield (SHOWN.get(phase.name, phase.name), *times, bar, phase.store or "-", hit, saves)


def _how(code: int) -> str:
    try:
        return f"by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"with exit code {code}"


def _columns(titles: Sequence[str]) -> list[Column]:
    return [Column(title, right=title in _RIGHT) for title in titles]


def render_page(report: StartReport, other: Against | None, title: str) -> str:
    data: dict[str, Any] = {**report.to_json(), "title": f"The start in {title}"}
    death = report.outcome.log.death
    data["headline"] = headline(report)
    data["death"] = death.text if death else None
    data["to_do"] = [remedy.line() for remedy in report.outcome.remedies] if death else []
    data["all_notes"] = [*notes(report)]
    data["against"] = {**other.to_json(), "headline": other.headline} if other else None
    return rendered(_PAGE, ("script.js",), f"The start in {title}: {data['headline']}", _CHART, data)
