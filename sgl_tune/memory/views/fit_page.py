"""Print a fit, also as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from runtime.sglang.releases import Release
from sgl_tune.cli.out import Output
from sgl_tune.memory.fit import Fit, Knobs, Trial
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.views.tables import exactness, failure_text, heading
from sgl_tune.units import memory_bytes


def fit_json(found: Fit, release: Release, command: str) -> dict[str, Any]:
    """Return the JSON that docs/schemas/mem-report-fit.json describes."""
    return {
        "title": heading(found.best.report),
        "gpu": found.best.report.whose.gpu,
        "goals": asdict(found.goals),
        **_trial_json(found.best, release),
        "command": command,
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
        "flags": trial.flags,
        "command_line": trial.change(release).line,
        "verdict": _verdict(trial),
        "binds": {"phase": trial.tightest, "what": _what(trial)},
        "free_at_peak_bytes": max(0, trial.slack),
        "kv_tokens": trial.tokens,
    }


def show_fit(out: Output, found: Fit, command: str, verbose: bool) -> None:
    headline, *details = fit_lines(found)
    out.line(headline, style="green")
    out.line(command, indent=2, style="cyan")
    out.line(heading(found.best.report), style="dim")
    out.line()
    for line in (*details, *(found.best.report.trust.notes if verbose or out.is_document else ())):
        out.line(line)


def fit_lines(found: Fit) -> Iterator[str]:
    """Yield the answer in one line, then the reasons."""
    best, report = found.best, found.best.report
    doubt = f"; {report.trust.not_modelled}" if report.trust.not_modelled else ""
    yield f"{_raised(found)}: {best.tokens:,} KV tokens per rank{_more(found)}{doubt}"
    free, wanted = memory_bytes(best.slack), found.goals.free_bytes
    left = f", and {memory_bytes(wanted)} were to stay free" if wanted else ""
    is_ghost = report.whose.source == "ghost"
    started = "start of your server" if is_ghost else "simulated start"
    bar = memory_bytes(report.margin_bytes)
    yield f"A {started} with these flags leaves {free} at the peak (±{bar}{left})."
    yield f"Limited by {', '.join(filter(None, (best.tightest, _what(best))))}."
    yield f"{'This start is' if is_ghost else 'Simulated'} {exactness(report)}."
    yield _beyond(found)
    if (context := report.sizes.context_length) and best.tokens:
        yield f"KV cache: {best.tokens / context:.1f} requests of {context:,} tokens per rank."
    yield from (f"Given up so that anything fits: {given}." for given in found.given_up)
    yield from report.trust.warnings


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


def _beyond(found: Fit) -> str:
    if found.beyond is None:
        return "A higher fraction leaves the driver nothing."
    notch, free = found.beyond.notch / 1000, memory_bytes(max(0, found.beyond.slack))
    how = {
        "oom": f"it runs out of memory in {found.beyond.tightest}",
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
    return asked.verdict == "fits" and Trial(Knobs(), 0, asked).slack >= 0


def _what(trial: Trial) -> str:
    held = trial.report.tightest.largest if trial.report.tightest else ()
    if not held:
        return "" if trial.report.whose.source == "ghost" else "nothing of its own"
    return f"{memory_bytes(held[0].bytes)} {held[0].what} at {held[0].where}"
