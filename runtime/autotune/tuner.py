"""FlashInfer's AutoTuner with another search, which workers share and whose winners the whole layer decides.

Only the loop of `choose_one` is ours. Lookups, keys, buckets, synthetic inputs, clocks and files are
FlashInfer's, so a stock process finds the entries. Every worker makes the same calls in the same order and
ends with the same entries.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import inf
from typing import Any, TypeVar

import torch
from flashinfer.autotuner import OptimizationProfile, TunableRunner, TuningConfig, _collect_metadata

from runtime.autotune.agreement import Terms, check_terms
from runtime.autotune.candidate import DEFAULT, Ask, Candidate
from runtime.autotune.errors import AutotuneError
from runtime.autotune.installed import (
    check_tuner,
    effective_config,
    file_key,
    keep_choice,
    keep_winner,
    runner_name,
    search,
    skipped_ops,
)
from runtime.autotune.layer import LayerRace, LayerTrial
from runtime.autotune.op_search import Bucket, OpSearch
from runtime.autotune.play_off import Settled, settle
from runtime.autotune.progress import BucketResult, Progress, Watch, unwatched
from runtime.autotune.search import SearchPolicy, dealt
from runtime.autotune.team import Team
from runtime.autotune.timed_tuner import Effort, TimedTuner

# Their tactics are collectives: all ranks must run the same one at the same time.
COLLECTIVE_OPS = frozenset({"flashinfer::pcie_ipc_all_reduce"})

# The rough cost of a finalist, to divide buckets among workers.
_READY_MS, _TURNS, _LEAST_TURN_MS, _LONGEST_MS = 1.0, 4, 0.2, 1e3

Played = tuple[Settled[Candidate], Mapping[Candidate, str]]
Result = TypeVar("Result")


class SearchTuner(TimedTuner):
    def __init__(
        self, team: Team | None = None, policy: SearchPolicy | None = None, watch: Watch = unwatched
    ) -> None:
        check_tuner()
        super().__init__(team, policy, watch)
        self.results: list[BucketResult] = []
        self.calls = 0
        self.settled_in_layers = 0  # buckets
        self.only: frozenset[str] | None = None  # the entries that may be searched; None: all
        self._layer: LayerTrial | None = None
        self._unsettled: dict[str, tuple[OpSearch, list[Bucket]]] = {}

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
            # A measured kernel may itself use tuned ops; only this worker is measuring it.
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
        """Return the first worker's shortlist: all workers ask for it, inside `get_valid_tactics`."""

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
        """Return the buckets without an entry, after checking that all workers ask for the same ones."""
        profiles: dict[str, OptimizationProfile] = {}
        for profile in self._generate_optimization_profiles(ask.config, ask.inputs):
            profiles.setdefault(file_key(self._key(ask, 0, profile)), profile)
        if self.only is not None:
            profiles = {key: profile for key, profile in profiles.items() if key in self.only}
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
        op = OpSearch(self, ask, profiles)
        buckets = op.screened()
        if self._layer is not None and ask.op in self._layer.ops:
            self._unsettled[ask.op] = op, buckets
            for bucket in buckets:
                self._keep(ask, bucket.profile, bucket.finalists[0] if bucket.finalists else None)
            return
        self._settle_alone(op, buckets)

    @contextmanager
    def of_layer(self, trial: LayerTrial) -> Iterator[None]:
        """Choose the tactics of ops tuned inside when the layer's call has ended."""
        if not self.is_tuning_mode or self._layer is not None:
            yield
            return
        self._layer = trial
        try:
            yield
            if self._unsettled:
                self._settle_in(trial)
        finally:
            self._layer = None
            self._unsettled.clear()

    def _settle_in(self, trial: LayerTrial) -> None:
        searches = list(self._unsettled.values())
        rows = {tuple(bucket.rows for bucket in found) for _, found in searches}
        if [op.ask.op for op, _ in searches] != list(trial.ops) or len(rows) > 1:
            # The other buckets had entries before and are not decided again.
            for op, found in searches:
                self._settle_alone(op, found)
            return
        together = list(zip(*(found for _, found in searches), strict=True))
        what = f"play-off of {trial.ops[0]} in its layer"
        costs = [sum(_cost(bucket) for bucket in buckets) for buckets in together]
        played = self._dealt(what, costs, lambda place: self._race(trial, together[place]))
        self.settled_in_layers += len(played)
        for place, settled in enumerate(played):
            for number, (op, found) in enumerate(searches):
                self._install(op.ask, found[place], side_of(settled, number), {})

    def _race(self, trial: LayerTrial, buckets: Sequence[Bucket]) -> Settled[Candidate]:
        rows, layer_ms = buckets[0].rows, sum(bucket.best_ms for bucket in buckets)
        race = LayerRace(trial, rows, layer_ms)
        settled = settle([bucket.finalists for bucket in buckets], race, self.policy, layer_ms)
        if not settled.winners and all(bucket.finalists for bucket in buckets):
            # The layer cannot run tactics that its kernels can, so the kernels' own times decide.
            leaders = tuple(bucket.finalists[0] for bucket in buckets)
            settled = Settled(leaders, {leaders: layer_ms})
        for op, bucket in zip(trial.ops, buckets, strict=True):
            self._tell(op, bucket, settled.winners[trial.ops.index(op)] if settled.winners else None)
        return settled

    def _settle_alone(self, op: OpSearch, buckets: Sequence[Bucket]) -> None:
        def settle_one(place: int) -> Played:
            settled, failures = op.settle(buckets[place])
            self._tell(op.ask.op, buckets[place], settled.winners[0] if settled.winners else None)
            return settled, failures

        played = self._dealt(f"play-off of {op.ask.op}", list(map(_cost, buckets)), settle_one)
        for bucket, (settled, failures) in zip(buckets, played, strict=True):
            self._install(op.ask, bucket, settled, failures)

    def _dealt(self, what: str, costs: Sequence[float], work: Callable[[int], Result]) -> list[Result]:
        """Divide the buckets among the workers. The finalists of one bucket are compared on one device."""
        who = dealt(costs, self.team.size)
        mine = [place for place, worker in enumerate(who) if worker == self.team.rank]
        told = self.team.together(what, lambda: {place: work(place) for place in mine})
        return [told[worker][place] for place, worker in enumerate(who)]

    def _tell(self, op: str, bucket: Bucket, winner: Candidate | None) -> None:
        best = inf if winner is None else bucket.time(winner)
        known = len(bucket.report.candidates)
        self.watch(Progress(op, bucket.rows, "play_off", known, 1, best, bucket.time(DEFAULT)))

    def _install(
        self, ask: Ask, bucket: Bucket, settled: Settled[Candidate], late: Mapping[Candidate, str]
    ) -> None:
        winner = settled.winners[0] if settled.winners else None
        key = self._keep(ask, bucket.profile, winner)
        if winner is not None:
            successes = self.stats.tuned_op_successful_configs
            successes[ask.op] = successes.get(ask.op, 0) + 1
        failures = {**bucket.report.failures, **late}
        for candidate in failures:
            name = f"{ask.op}::{type(ask.runners[candidate.runner]).__name__}"
            if hasattr(self.stats, "failed_tactics"):  # since 0.6.15
                self.stats.failed_tactics.setdefault(name, set()).add(candidate.tactic)
        self.results.append(bucket_result(ask, bucket, key, settled, failures))
        keep_choice(self, key, self.results[-1])

    def _keep(self, ask: Ask, profile: OptimizationProfile, winner: Candidate | None) -> Any:
        """Store the winner where FlashInfer's own lookups and files find it, and return its key."""
        key = self._key(ask, winner.runner if winner else 0, profile)
        if winner is not None:
            keep_winner(self, key, winner.runner, winner.tactic, profile, ask.config)
        return key


def _cost(bucket: Bucket) -> float:
    """Estimate the cost of a play-off: each finalist is prepared, and then has some turns."""
    turn_ms = max(_LEAST_TURN_MS, min(bucket.best_ms, _LONGEST_MS))
    return len(bucket.finalists) * (_READY_MS + _TURNS * turn_ms)


def side_of(settled: Settled[Candidate], number: int) -> Settled[Candidate]:
    """Return one op's part of a layer's play-off: each of its tactics in its best combination."""
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
    times = settled.times if winner else {}
    behind = {one: time / times[settled.winners] - 1 for (one,), time in times.items()}
    return BucketResult(
        op=ask.op,
        runner=runner_name(key),
        bucket=bucket.rows,
        file_key=file_key(key),
        tactic=None if winner is None else winner.tactic,
        best_ms=inf if winner is None else bucket.time(winner),
        default_ms=bucket.time(DEFAULT),
        runner_up=min((share for one, share in behind.items() if one != winner), default=None),
        tactics=len(bucket.report.candidates),
        finalists=len(bucket.finalists),
        launches=bucket.report.launches,
        failed={str(candidate.tactic): reason for candidate, reason in failures.items()},
        race={
            json.dumps([type(ask.runners[one.runner]).__name__, one.tactic]): share
            for one, share in behind.items()
        },
    )
