"""A settled bucket as it is told: to the launcher, the manifest and who watches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf, isfinite
from typing import Any

from runtime.autotune.candidate import DEFAULT, Ask, Candidate
from runtime.autotune.installed import file_key, runner_name
from runtime.autotune.op_search import Bucket
from runtime.autotune.play_off import Settled
from runtime.autotune.progress import BucketResult


def side_of(settled: Settled[Candidate], number: int) -> Settled[Candidate]:
    """What a layer's play-off says of one op: each of its tactics in the best company it had."""
    if not settled.winners:
        return settled
    own: dict[tuple[Candidate, ...], float] = {}
    for names, time in settled.times.items():
        own[(names[number],)] = min(time, own.get((names[number],), inf))
    return Settled((settled.winners[number],), own)


def bucket_result(
    ask: Ask, bucket: Bucket, key: Any, settled: Settled[Candidate], failures: Mapping[Candidate, str]
) -> BucketResult:
    winner = settled.winners[0] if settled.winners else None
    return BucketResult(
        op=ask.op,
        runner=runner_name(key),
        bucket=bucket.rows,
        file_key=file_key(key),
        tactic=None if winner is None else winner.tactic,
        best_ms=inf if winner is None else bucket.time(winner),
        default_ms=bucket.time(DEFAULT),
        runner_up=_runner_up(settled),
        tactics=len(bucket.report.candidates),
        finalists=len(bucket.finalists),
        launches=bucket.report.launches,
        failed={str(candidate.tactic): reason for candidate, reason in failures.items()},
        race=_race(ask, settled),
    )


def _race(ask: Ask, settled: Settled[Candidate]) -> dict[str, float]:
    best = settled.times[settled.winners] if settled.winners else inf
    return {
        json.dumps([type(ask.runners[one.runner]).__name__, one.tactic]): time / best - 1
        for (one,), time in settled.times.items()
        if isfinite(best) and isfinite(time)
    }


def _runner_up(settled: Settled[Candidate]) -> float | None:
    """How much slower the second was, relative to the winner."""
    if not settled.winners:
        return None
    others = [time for names, time in settled.times.items() if names != settled.winners]
    return min(others, default=inf) / settled.times[settled.winners] - 1 if others else None
