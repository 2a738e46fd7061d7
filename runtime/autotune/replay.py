"""Measures existing entries again: each beside the default tactic, in turns on one device."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from statistics import median
from typing import Any

import torch
from flashinfer.autotuner import AutoTuner, OptimizationProfile

from runtime.autotune.bench import Bench
from runtime.autotune.candidate import DEFAULT, Ask, Candidate
from runtime.autotune.cpu_clock import CpuSearchTuner
from runtime.autotune.installed import file_key, plain_tactic
from runtime.autotune.progress import Progress, Watch, unwatched
from runtime.autotune.search import WHOLE_TURN
from runtime.autotune.tuner import SearchTuner

_ROUNDS, _CPU_ROUNDS = 6, 3
_CLOCK_WARM_UP_SECONDS = 0.05
_TURN_MS = 1.0  # of one of the two in a round
# Longer kernels have so many rows that routings do not change their time.
_TURNS_BELOW_MS = 0.25


@dataclass(frozen=True, slots=True)
class Replayed:
    """One entry's times in milliseconds per launch; None if it failed, with the reason in `failed`."""

    op: str
    bucket: int
    key: str
    tactic: Any
    best_ms: float | None
    default_ms: float | None
    failed: str | None


class ReplayTuner(SearchTuner):
    """A tuner that times the entries in its files instead of tuning, and stores nothing."""

    def __init__(self, watch: Watch = unwatched) -> None:
        super().__init__(watch=watch)
        self.replayed: list[Replayed] = []

    def _missing_profiles(self, ask: Ask) -> list[OptimizationProfile]:
        """Return the profiles that have an entry, each once."""
        known = {entry.key for entry in self.replayed}
        found: dict[str, OptimizationProfile] = {}
        for profile in self._generate_optimization_profiles(ask.config, ask.inputs):
            hit, number, _ = self._search(ask, profile.get_opt_shapes())
            key = file_key(self._key(ask, number, profile))
            if hit and key not in known:
                found.setdefault(key, profile)
        return list(found.values())

    def _tune(self, ask: Ask, profiles: Sequence[OptimizationProfile]) -> None:
        for profile in profiles:
            _, number, tactic = self._search(ask, profile.get_opt_shapes())
            winner = Candidate(number, plain_tactic(tactic))
            bench = Bench(self, ask, profile)
            times = self._timed(bench, winner)
            best, default = times.get(winner), times.get(DEFAULT)
            key, failed = file_key(self._key(ask, number, profile)), bench.failures.get(winner)
            entry = Replayed(ask.op, ask.bucket(profile), key, winner.tactic, best, default, failed)
            self.replayed.append(entry)
            self.watch(Progress(ask.op, entry.bucket, "decided", 2, 1, best or 0.0, default or 0.0))

    def _timed(self, bench: Bench, winner: Candidate) -> dict[Candidate, float]:
        both = list(dict.fromkeys((winner, DEFAULT)))
        bench.prepare(both)
        bench.warm_clock(winner, _CLOCK_WARM_UP_SECONDS)
        turn = WHOLE_TURN if self.queues else 1
        first = [ms for ms in bench.clock(both, turn) if isfinite(ms)]
        if not first:
            return {}
        turn = turn if min(first) < _TURNS_BELOW_MS else 1
        launches = turn * max(1, round(_TURN_MS / max(min(first), 1e-3) / turn))
        times: dict[Candidate, list[float]] = {candidate: [] for candidate in both}
        self._play(bench, times, launches)
        told = self._told(times)
        if told.get(DEFAULT, inf) < told.get(winner, inf):  # once more, before anybody is told so
            self._play(bench, times, launches)
        return self._told(times)

    def _play(self, bench: Bench, times: dict[Candidate, list[float]], launches: int) -> None:
        order = list(times)
        for _ in range(_ROUNDS if self.queues else _CPU_ROUNDS):
            for candidate, ms in zip(order, bench.clock(order, launches), strict=True):
                times[candidate].append(ms)
            order.reverse()

    def _told(self, times: dict[Candidate, list[float]]) -> dict[Candidate, float]:
        """Return each candidate's time: the median, but on a CPU the best, as others only add time."""
        middle = median if self.queues else min
        return {candidate: middle(seen) for candidate, seen in times.items() if all(map(isfinite, seen))}


class CpuReplayTuner(ReplayTuner, CpuSearchTuner):
    """The same, with the CPU's clock."""


def install_replay_tuner(device: torch.device, watch: Watch = unwatched) -> ReplayTuner:
    AutoTuner._instance = (ReplayTuner if device.type == "cuda" else CpuReplayTuner)(watch)
    return AutoTuner._instance
