"""docs/accuracy.md: each start with its prediction, made before, and how far that was off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runtime.server.units import GIB, MIB

_HEAD = """# How far predictions are off

Starts of a stock SGLang 0.5.17 on H200s of one host, random weights, models whole or cut in depth, in
rounds. Each start was predicted before it was run: `benchmarks/results/real_starts_predicted_ROUND.json`
beside `real_starts_ROUND.json`.

    export PYTHONPATH=.
    python benchmarks/real_starts/accuracy.py predict second
    python benchmarks/real_starts/accuracy.py commands second | python benchmarks/real_starts/drive.py OUT 4
    python benchmarks/real_starts/accuracy.py judge second OUT

The third line needs the GPUs and SGLang, the others nothing. The steps are the server's own, read around
each by torch's counters and the driver. A prediction counts as right if it says whether the start fits, or
says that it is inside its error bar; KV tokens within 0.5 %, the peak of each phase within 2 % or 256 MiB,
what lies outside torch within the error bar that the report prints. Constants of several ranks were measured
on other starts.
"""
_COLUMNS = (
    *("start", "GPUs", "predicted, free at the peak", "measured", "verdict"),
    *("KV tokens", "worst peak", "worst outside torch"),
)


def page(rounds: Mapping[str, dict[str, Any]], again: Sequence[dict[str, Any]]) -> str:
    """Of each round what `judge` wrote, and of all what is predicted today."""
    lines = [_HEAD, *_today(again)]
    for name, told in rounds.items():
        rows = told["starts"]
        lines += [
            f"## The {name} round, {told['date']}",
            "",
            _summary(rows),
            "",
            *_unrun(told["unrun"]),
            *_starts(rows),
            "",
            *_beyond(rows),
        ]
    lines += ["## Their commands", ""]
    lines += [line for told in rounds.values() for line in _commands(told["starts"])]
    return "\n".join(lines) + "\n"


def _unrun(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"Predicted too, and not run to their end: {', '.join(names)}."
        yield ""


def _today(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The rounds taught rules: what they come to, and how much narrower the error bar is."""
    errors = [error for row in rows for error in row["errors"]]
    within = sum(error["within"] for error in errors)
    right = sum(row["right"] for row in rows)
    yield "## As predicted today"
    yield ""
    yield (
        f"What was measured then beside predictions of today (`accuracy.py again`): {right} of {len(rows)} "
        f"starts end as they did, {within} of {len(errors)} figures are as near as asked."
    )
    yield ""
    yield "| GPUs | starts | error bar then | now | worst outside torch then | now |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for gpus in sorted({row["gpus"] for row in rows}):
        of = [row for row in rows if row["gpus"] == gpus]
        cells = [
            str(gpus),
            str(len(of)),
            _span(row["then"] for row in of),
            _span(row["error_bar"] for row in of),
        ]
        outside = [error for row in of for error in row["errors"] if error["what"].endswith("outside torch")]
        cells += [_farthest(error[name] - error["measured"] for error in outside) for name in _WHEN]
        yield f"| {' | '.join(cells)} |"
    yield ""


_WHEN = ("then", "predicted")


def _span(bars: Iterable[int]) -> str:
    least, *_, most = sorted(bars)
    return f"{least / MIB:,.0f} to {most / MIB:,.0f} MiB"


def _farthest(gaps: Iterable[int]) -> str:
    return f"{max(gaps, key=abs) / MIB:+,.0f} MiB"


def _summary(rows: Sequence[dict[str, Any]]) -> str:
    counts = {
        kind: sum(row["verdict"] == kind for row in rows)
        for kind in ("right", "inside the error bar", "wrong")
    }
    errors = [error for row in rows for error in row["errors"]]
    within = sum(error["within"] for error in errors)
    verdicts = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    told = [f"Of {len(rows)} starts: {verdicts}. Of {len(errors)} figures {within} are as near as asked."]
    told += [
        f"{row['name']} was wrong; since then it is predicted: {row['now']}." for row in rows if row["now"]
    ]
    return "\n\n".join(told)


def _starts(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---|---:|---|---|---|---:|---:|---:|"
    for row in rows:
        guess, real = row["predicted"], row["measured"]
        predicted = f"{guess['verdict']}, {row['free_at_peak'] / GIB:.2f} ± {row['error_bar'] / GIB:.2f} GiB"
        found = "fits" if real["fits"] else f"ends in {real['failed_in']}"
        cells = [row["name"], str(row["gpus"]), predicted, found, row["verdict"]]
        cells += [_tokens(row), _worst(row, "peak"), _worst(row, "outside torch")]
        yield f"| {' | '.join(cells)} |"


def _tokens(row: dict[str, Any]) -> str:
    for error in row["errors"]:
        if error["what"] == "KV tokens":
            return f"{error['predicted'] / error['measured'] - 1:+.3%}".replace("%", " %")
    return "-"


def _worst(row: dict[str, Any], of: str) -> str:
    gaps = [error["predicted"] - error["measured"] for error in row["errors"] if error["what"].endswith(of)]
    return f"{max(gaps, key=abs) / MIB:+,.0f} MiB" if gaps else "-"


def _beyond(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What is further off than asked."""
    missed = [(row["name"], error) for row in rows for error in row["errors"] if not error["within"]]
    if not missed:
        return
    yield "Further off than asked:"
    yield ""
    for name, error in missed:
        yield f"* {name}, {error['what']}: {error['predicted']:,} predicted, {error['measured']:,} measured"
    yield ""


def _commands(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield f"* {row['name']}: `{row['command'].removeprefix('python -m sglang.launch_server ')}`"
