"""A fit on a terminal, in an issue or a pull request, and for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.cli.out import Output
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.table import exactness, failure_text
from sgl_tune.memory.trial import Fit, Trial
from sgl_tune.units import memory_bytes


def fit_json(found: Fit, release: Release, title: str) -> dict[str, Any]:
    """As docs/schemas/mem-report-fit.json says."""
    return {
        "title": title,
        "gpu": found.best.report.gpu,
        "goals": found.goals.to_json(),
        **_trial_json(found.best, release),
        "margin_bytes": found.best.report.margin_bytes,
        "asked": {
            "mem_fraction_static": found.asked.sizes.mem_fraction_static,
            "fits": _fits(found.asked),
            "kv_tokens": found.asked.sizes.kv_tokens,
        },
        "given_up": list(found.given_up),
        "one_notch_more": None if found.beyond is None else _trial_json(found.beyond, release),
        "report": found.best.report.to_json(),
    }


def _trial_json(trial: Trial, release: Release) -> dict[str, Any]:
    return {
        "flags": dict(trial.flags),
        "command_line": trial.line(release),
        "verdict": _verdict(trial),
        "binds": {"phase": _phase(trial), "what": _what(trial)},
        "free_at_peak_bytes": max(0, trial.slack),
        "kv_tokens": trial.tokens,
    }


def show_fit(out: Output, found: Fit, release: Release, title: str) -> None:
    out.line(title, style="bold")
    headline, *details = fit_lines(found)
    out.line(headline, style="green")
    out.line()
    out.line(found.best.line(release), indent=2)
    out.line()
    for line in details:
        out.line(line)


def fit_markdown(found: Fit, release: Release, title: str) -> Iterator[str]:
    headline, *details = fit_lines(found)
    yield from (f"### {title}", "", f"**{headline}**", "", f"    {found.best.line(release)}", "")
    yield from (f"- {line}" for line in details)


def fit_lines(found: Fit) -> Iterator[str]:
    """The answer in a line, then what it rests on."""
    best = found.best
    report, context = best.report, best.report.sizes.context_length
    doubt = f"; {report.not_modelled}" if report.not_modelled else ""
    yield f"{_raised(found)}: {best.tokens:,} KV tokens a rank{_more(found)}{doubt}"
    started = "start of your server" if report.source == "ghost" else "simulated start"
    yield (
        f"A {started} with these flags leaves {memory_bytes(best.slack)} at the peak "
        f"(±{memory_bytes(report.margin_bytes)}{_wanted(found)})."
    )
    yield f"Binds: {', '.join(filter(None, (_phase(best), _what(best))))}."
    if doubts := exactness(report):
        yield f"This start is {doubts}." if report.source == "ghost" else f"Answered {doubts}."
    yield _beyond(found)
    if context and best.tokens:
        yield f"KV cache: {best.tokens / context:.1f} requests of {context:,} tokens on a rank."
    for given in found.given_up:
        yield f"Given up, for anything to fit: {given}."
    for note in report.notes:
        yield f"({note})"


def _raised(found: Fit) -> str:
    before, now = found.asked.sizes.mem_fraction_static, found.best.notch / 1000
    if before is None:
        return f"Fraction {now:.3f}"
    if not _fits(found.asked):
        return f"As asked it does not fit ({before:.3f}); {now:.3f} does"
    if now > before:
        return f"Raise it: {before:.3f} fits with room, {now:.3f} is the highest that does"
    less = f"leaves less than is wanted; {now:.3f} is the highest"
    return f"{before:.3f} {'is the highest that fits' if now == before else less}"


def _more(found: Fit) -> str:
    before = found.asked.sizes.kv_tokens
    if not before or not _fits(found.asked):
        return ""
    change = round(100 * (found.best.tokens / before - 1))
    return f", {abs(change)} % {'more' if change > 0 else 'less'} than {before:,}" if change else ""


def _wanted(found: Fit) -> str:
    free = found.goals.free_bytes
    return f", and {memory_bytes(free)} were to stay free" if free else ""


def _beyond(found: Fit) -> str:
    if found.beyond is None:
        return "A higher fraction leaves the driver nothing."
    notch, free = found.beyond.notch / 1000, memory_bytes(max(0, found.beyond.slack))
    how = {
        "oom": f"it runs out of memory in {_phase(found.beyond)}",
        "inside the error bar": f"{free} at the peak, inside the error bar",
        "fits": f"{free} at the peak, less than is wanted",
        "failed": f"it ends in {found.beyond.report.run.failed_in}: {failure_text(found.beyond.report)}",
    }[_verdict(found.beyond)]
    return f"One notch more, {notch:.3f}: {how}."


def _verdict(trial: Trial) -> str:
    if trial.report.verdict == "failed":
        return "failed"
    if trial.slack < 0:
        return "oom"
    return "fits" if trial.slack >= trial.report.margin_bytes else "inside the error bar"


def _fits(asked: MemoryReport) -> bool:
    return asked.verdict == "fits" and Trial.of(asked).slack >= 0


def _phase(trial: Trial) -> str:
    return trial.tightest.name if trial.tightest else ""


def _what(trial: Trial) -> str:
    held = trial.tightest.largest if trial.tightest else ()
    if not held:
        return "" if trial.report.source == "ghost" else "nothing of its own"
    return f"{memory_bytes(held[0].bytes)} {held[0].what} at {held[0].where}"
