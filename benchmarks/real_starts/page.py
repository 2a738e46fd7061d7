"""docs/accuracy.md: what was measured on real GPUs beside what was predicted, made by `make ghost`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runtime.server.units import MIB

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
RESULTS = ROOT / "benchmarks" / "results"
JUDGED = RESULTS / "ghost_judged.json"
BLIND = ("sixth", "seventh", "unheard")
_HEAD = """# How far predictions are off

Starts of a stock SGLang 0.5.17 with FlashInfer 0.7.2 on H200s, random weights, models whole or cut in depth,
beside the same server on a GPU that is not there. Around each of the server's own steps stand readings of
torch's counters and of the driver. `make ghost` runs the second half again and writes this page. The
commands are in [starts.toml](../benchmarks/real_starts/starts.toml).

A figure is predicted less measured, of the phase where it is farthest off. *torch* is the peak of torch's
allocator; *outside* is what the driver counts beyond it, by a table that was fitted without this start and
without every other start of its model. `±` is the error bar that a report prints for it.
"""
_BLIND = """Predictions are in `ghost_predicted_ROUND.json` of [benchmarks/results](../benchmarks/results),
measurements in `ghost_measured_ROUND.json`. In the round `unheard` the model was invented for the test: no
release has its class or its shape ([unheard.py](../benchmarks/real_starts/unheard.py)).

torch.compile times each kernel that its cache lacks, and needs a buffer of 60 MiB for that. `ernie-dies` and
`zephyrine-dies` were predicted with an empty cache and ran on a filled one. Predicted again with that cache,
each of their peaks is equal to the byte.
"""
_CORE = """## The runtime core

Without a server the core predicts its own families: {right} of {starts} of these starts end as they did,
{within} of {figures} figures are within 0.5 % of KV tokens, 2 % or 256 MiB of a peak, and the error bar of
what lies outside torch (`python benchmarks/real_starts/accuracy.py again`)."""
_NEAR = MIB // 10
_STARTS = ("start", "GPUs", "measured", "ghost", "KV tokens", "torch, worst", "outside, worst", "±", "exact")


def page() -> str:
    """Of what the judge found and of the rounds that were predicted before they ran."""
    judged = json.loads(JUDGED.read_text())
    return "\n".join([_HEAD, *_judged(judged), *_blind(), _core()]) + "\n"


def _judged(told: dict[str, Any]) -> Iterator[str]:
    rows = told["starts"]
    yield f"## {len(rows)} starts, asked again on {told['date']}"
    yield ""
    yield from _counts(rows)
    far = [row for row in rows if _is_far(row)]
    yield f"* In {len(rows) - len(far)} starts each peak of torch is within 0.1 MiB, and the memory outside"
    yield "  torch within its error bar ([each](../benchmarks/results/ghost_judged.json)). The others:"
    yield ""
    yield from _table(_STARTS, map(_cells, far))
    yield ""
    reasons = [(row["name"], row["inexact"]) for row in rows if row["inexact"]]
    if reasons:
        yield "Not exact, and why:"
        yield ""
        yield from (f"* {name}: {', '.join(map(_shortened, why))}" for name, why in reasons)
        yield ""


def _is_far(row: dict[str, Any]) -> bool:
    """Torch is off by more than 0.1 MiB, memory outside it by more than its error bar."""
    return abs(row["torch"] or 0) > _NEAR or abs(row["outside"] or 0) > row["doubt"]


def _shortened(why: str) -> str:
    """A compiled module's name is 200 letters long."""
    return f"{why[:40]}...{why[-10:]}" if len(why) > 60 else why


def _counts(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for name, of in (
        ("One GPU", [row for row in rows if row["gpus"] == 1]),
        ("Two and four GPUs", [row for row in rows if row["gpus"] > 1]),
    ):
        if of:
            exact = [row for row in of if not row["inexact"]]
            alike = sum(row["measured"] == row["ghost"] for row in of)
            yield (
                f"* {name}: {alike} of {len(of)} end as the real one; {len(exact)} call themselves exact, and"
                f" {sum(row['within'] for row in exact)} of these are within {of[0]['limits']}."
            )
    seen = [row for row in rows if row["outside"] is not None]
    within = sum(abs(row["outside"]) <= row["doubt"] for row in seen)
    yield f"* Outside torch: {within} of {len(seen)} are within their error bar."


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["name"],
        str(row["gpus"]),
        row["measured"],
        "the same" if row["ghost"] == row["measured"] else f"**{row['ghost']}**",
        _share(row["tokens"]),
        _gap(row["torch"]),
        _gap(row["outside"]),
        f"{row['doubt'] / MIB:,.0f} MiB",
        "not" if row["inexact"] else "yes",
    ]


def _share(tokens: float | None) -> str:
    return "-" if tokens is None else "0" if not tokens else f"{tokens:+.4%}".replace("%", " %")


def _gap(bytes: int | None) -> str:
    if bytes is None:
        return "-"
    if abs(bytes) < MIB // 100:
        return f"{bytes:+,} bytes" if bytes else "0"
    return f"{bytes / MIB:+,.2f} MiB"


def _blind() -> Iterator[str]:
    """Rounds that were predicted, and committed, before they ran."""
    rows = [row for of_round in BLIND for row in blind_rows(of_round)]
    if not rows:
        return
    ends = sum(row["measured"] == row["ghost"] for row in rows)
    yield "## Predicted and committed before they ran"
    yield ""
    yield f"{ends} of {len(rows)} end as predicted. {_BLIND}"
    yield from _table(_STARTS, map(_cells, rows))
    yield ""


def blind_rows(of_round: str) -> Iterator[dict[str, Any]]:
    """Each start of a round that was run, as it was predicted and as it was measured."""
    measured = RESULTS / f"ghost_measured_{of_round}.json"
    if not measured.exists():
        return
    predicted = json.loads((RESULTS / f"ghost_predicted_{of_round}.json").read_text())["starts"]
    guesses = {row["name"]: row for row in predicted}
    for real in json.loads(measured.read_text())["starts"]:
        guess = guesses[real["name"]]
        phases, found = guess["phases"], real["driver"]
        both = [name for name in found if name in phases]
        tokens = (real["kv_tokens"] or {}).get("driver")
        sizes = guess["sizes"] or {}
        yield {
            "name": f"{of_round}/{real['name']}",
            "gpus": guess["gpus"],
            "measured": _ending(real["driver_ending"], real.get("died_in")),
            "ghost": _ending(guess["ending"], guess["died_in"]),
            "tokens": sizes["kv_tokens"] / tokens - 1 if tokens and sizes else None,
            "torch": _farthest(phases[name]["peak"] - found[name]["peak"] for name in both),
            "outside": _farthest(phases[name]["outside"] - found[name]["outside_torch"] for name in both),
            "doubt": guess["doubt_outside"],
            "inexact": guess["inexact"],
        }


def _ending(how: str, phase: str | None) -> str:
    died = re.fullmatch(r"died in (.+)", how)
    if died or how == "died":
        return f"dies in {died.group(1) if died else phase}"
    return how


def _farthest(gaps: Iterable[int]) -> int | None:
    return max(gaps, key=abs, default=None)


def _core() -> str:
    """What answers where no server is: its second opinion on the same starts."""
    rows = json.loads((RESULTS / "real_starts_again.json").read_text())["starts"]
    errors = [error for row in rows for error in row["errors"]]
    within = sum(error["within"] for error in errors)
    right = sum(row["right"] for row in rows)
    return _CORE.format(right=right, starts=len(rows), within=within, figures=len(errors))


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|---|---:|---|---|{'---:|' * (len(columns) - 5)}---|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
