"""FlashInfer's AutoTuner with another search: tactics are split over the workers and screened early.

Only the loop of `choose_one` is ours. Lookups, keys, buckets, synthetic inputs, clocks and files stay
FlashInfer's, so what is found is what a stock process looks for. Every worker makes the same calls in the
same order and ends with the same table.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any

import torch
from flashinfer.autotuner import (
    OptimizationProfile,
    TunableRunner,
    TuningConfig,
    _collect_metadata,
)

from runtime.autotune.agreement import BucketReport, Terms, check_terms, merge_reports
from runtime.autotune.bench import Bench
from runtime.autotune.candidate import DEFAULT, Ask, Candidate
from runtime.autotune.errors import AutotuneError
from runtime.autotune.installed import (
    check_tuner,
    effective_config,
    file_key,
    keep_winner,
    runner_name,
    search,
    skipped_ops,
)
from runtime.autotune.progress import BucketResult, Progress, Watch, unwatched
from runtime.autotune.search import Effort, PlayOff, Screened, SearchPolicy, finalists, play_off, screen
from runtime.autotune.team import Team
from runtime.autotune.timed_tuner import TimedTuner

# Their tactics are collectives: all ranks must run the same one at the same time.
COLLECTIVE_OPS = frozenset({"flashinfer::pcie_ipc_all_reduce"})
_CLOCK_WARM_UP_SECONDS = 0.05

Played = tuple[PlayOff[Candidate], Mapping[Candidate, str]]


class SearchTuner(TimedTuner):
    def __init__(
        self, team: Team | None = None, policy: SearchPolicy | None = None, watch: Watch = unwatched
    ) -> None:
        check_tuner()
        super().__init__()
        self.team, self.policy, self.watch = team or Team(), policy or SearchPolicy(), watch
        self.results: list[BucketResult] = []
        self.calls = 0

    def choose_one(
        self,
        custom_op: str,
        runners: list[TunableRunner],
        tuning_config: TuningConfig,
        inputs: list[Any],
        **kwargs: Any,
    ) -> tuple[TunableRunner, Any]:
        if not self.is_tuning_mode or custom_op in skipped_ops(self) | COLLECTIVE_OPS:
            return super().choose_one(custom_op, runners, tuning_config, inputs, **kwargs)
        with self._lock:
            self.calls += 1
            ask = Ask(custom_op, runners, effective_config(self, tuning_config), inputs, kwargs)
            # A measured kernel may itself be made of tuned ops; this worker alone is measuring it.
            if not self._measuring:
                missing = self._missing_profiles(ask)
                if missing:
                    self._tune(ask, missing)
            _, number, tactic = self._search(ask, tuple(self._get_input_sizes(inputs)))
            return runners[number], tactic

    def rank_tactics(
        self,
        custom_op: str,
        runners: list[TunableRunner],
        tuning_config: TuningConfig,
        inputs: list[Any],
        k: int = 1,
        **kwargs: Any,
    ) -> list[Any]:
        """A shortlist asked for inside `get_valid_tactics`, so on every worker: the first worker's counts."""

        def rank() -> list[Any]:
            with self.measuring(Effort(self.warmup, self.repeat, self.stream_delay_micro_secs)):
                return super(SearchTuner, self).rank_tactics(
                    custom_op, runners, tuning_config, inputs, k=k, **kwargs
                )

        if k == 1 or not self.is_tuning_mode or self._measuring:
            return rank()
        return self.team.together(f"ranking {custom_op}", rank)[0]

    def _search(self, ask: Ask, sizes: tuple[tuple[int, ...], ...]) -> tuple[bool, int, Any]:
        return search(self, ask.op, ask.runners, sizes, ask.config, ask.inputs, tuning=True)

    def _key(self, ask: Ask, number: int, profile: OptimizationProfile) -> Any:
        runner = ask.runners[number]
        extras = runner.get_cache_key_extras(ask.inputs)
        return self._get_cache_key(ask.op, runner, profile.get_opt_shapes(), ask.config, extras)

    def _missing_profiles(self, ask: Ask) -> list[OptimizationProfile]:
        """The buckets that nobody has an entry for, after making sure that all workers mean the same."""
        profiles: dict[str, OptimizationProfile] = {}
        for profile in self._generate_optimization_profiles(ask.config, ask.inputs):
            profiles.setdefault(file_key(self._key(ask, 0, profile)), profile)
        missing = tuple(
            key for key, profile in profiles.items() if not self._search(ask, profile.get_opt_shapes())[0]
        )
        check_terms(self.team.gather(Terms(ask.op, tuple(profiles), missing, self._environment)))
        return [profiles[key] for key in missing]

    @cached_property
    def _environment(self) -> dict[str, str]:
        return _collect_metadata()

    def _tune(self, ask: Ask, profiles: Sequence[OptimizationProfile]) -> None:
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise AutotuneError(f"{ask.op} is not tuned yet, and a CUDA graph is being captured: tune before")
        self.stats.tuned_op_total_configs[ask.op] = len(profiles)
        reports = self.team.together(f"screening {ask.op}", lambda: self._screen_all(ask, profiles))
        merged = [
            merge_reports(ask.where(profile), [report[i] for report in reports])
            for i, profile in enumerate(profiles)
        ]
        played = self.team.together(
            f"play-off of {ask.op}", lambda: self._play_off_all(ask, profiles, merged)
        )
        for i, profile in enumerate(profiles):
            self._install(ask, profile, merged[i], played[i % self.team.size][i])

    def _screen_all(self, ask: Ask, profiles: Sequence[OptimizationProfile]) -> list[BucketReport]:
        reports: list[BucketReport] = []
        hints: dict[Candidate, Screened] = {}
        for i, profile in enumerate(profiles):
            bench = Bench(self, ask, profile)
            candidates = bench.candidates()
            share = [c for n, c in enumerate(candidates) if (n + i) % self.team.size == self.team.rank]
            # Neighbouring buckets have similar winners: going first, they make the others hopeless.
            share.sort(key=lambda candidate: hints[candidate].time if candidate in hints else inf)
            bench.prepare(share)
            if i == 0 and share:
                self._warm_clock(bench, share[0])
            screened = screen(share, bench.measure, self.policy)
            hints.update(screened)
            reports.append(BucketReport(tuple(candidates), screened, dict(bench.failures)))
            standing = finalists(screened, self.policy)
            best = screened[standing[0]].time if standing else inf
            default = screened[DEFAULT].time if DEFAULT in screened else inf
            bucket = ask.bucket(profile)
            self.watch(Progress(ask.op, bucket, "screen", len(candidates), len(standing), best, default))
        return reports

    def _warm_clock(self, bench: Bench, candidate: Candidate) -> None:
        end = time.perf_counter() + _CLOCK_WARM_UP_SECONDS
        while time.perf_counter() < end:
            bench.measure(candidate, self.policy.effort(self.policy.full, 0.0))

    def _play_off_all(
        self, ask: Ask, profiles: Sequence[OptimizationProfile], reports: Sequence[BucketReport]
    ) -> dict[int, Played]:
        """A bucket's finalists meet on one device; the buckets are dealt out to the workers."""
        played: dict[int, Played] = {}
        for i in range(self.team.rank, len(profiles), self.team.size):
            bench = Bench(self, ask, profiles[i])
            contenders = _contenders(reports[i], self.policy, self.team.size)
            bench.prepare(contenders)
            fastest = min((reports[i].screened[candidate].time for candidate in contenders), default=0.0)
            result = play_off(contenders, bench.measure, self.policy, fastest)
            played[i] = (result, dict(bench.failures))
            best = inf if result.winner is None else result.times[result.winner]
            default = result.times.get(DEFAULT, inf)
            bucket = ask.bucket(profiles[i])
            self.watch(Progress(ask.op, bucket, "play_off", len(contenders), 1, best, default))
        return played

    def _install(self, ask: Ask, profile: OptimizationProfile, report: BucketReport, played: Played) -> None:
        """The winner, where FlashInfer's own lookups and files find it."""
        result, late_failures = played
        winner = result.winner
        key = self._key(ask, winner.runner if winner else 0, profile)
        if winner is not None:
            keep_winner(self, key, winner.runner, winner.tactic, profile, ask.config)
            successes = self.stats.tuned_op_successful_configs
            successes[ask.op] = successes.get(ask.op, 0) + 1
        failures = {**report.failures, **late_failures}
        for candidate in failures:
            name = f"{ask.op}::{type(ask.runners[candidate.runner]).__name__}"
            if hasattr(self.stats, "failed_tactics"):  # since 0.6.15
                self.stats.failed_tactics.setdefault(name, set()).add(candidate.tactic)
        self.results.append(_bucket_result(ask, profile, key, report, result, failures))


def _contenders(report: BucketReport, policy: SearchPolicy, devices: int) -> list[Candidate]:
    """The finalists; the default joins them, so that what tuning gains is measured and not guessed."""
    best = finalists(report.screened, policy, devices)
    return best if DEFAULT in best or not best else [*best, DEFAULT]


def _bucket_result(
    ask: Ask,
    profile: OptimizationProfile,
    key: Any,
    report: BucketReport,
    result: PlayOff[Candidate],
    failures: Mapping[Candidate, str],
) -> BucketResult:
    winner, times = result.winner, result.times
    return BucketResult(
        op=ask.op,
        runner=runner_name(key),
        bucket=ask.bucket(profile),
        file_key=file_key(key),
        tactic=None if winner is None else winner.tactic,
        best_ms=inf if winner is None else times[winner],
        default_ms=times.get(DEFAULT, inf),
        tactics=len(report.candidates),
        finalists=len(times),
        failed={str(candidate.tactic): reason for candidate, reason in failures.items()},
    )
