"""Measures one op in one bucket on this worker's device, with synthetic inputs and all tactics that fit."""

import inspect
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch
from flashinfer.autotuner import OptimizationProfile

from runtime.autotune.candidate import DEFAULT, Ask, Candidate
from runtime.autotune.errors import (
    AutotuneError,
    TuningOutOfMemory,
    first_line,
    is_out_of_memory,
    memory_watched,
)
from runtime.autotune.installed import (
    allowed,
    launches_when_prepared,
    measured_alone,
    measurement_scope,
    plain_tactic,
    precompile,
    time_tactic,
)
from runtime.autotune.search import WHOLE_TURN
from runtime.autotune.timed_tuner import MOST_QUEUED, Effort, TimedTuner


@dataclass
class Bench:
    tuner: TimedTuner
    ask: Ask
    profile: OptimizationProfile
    expected_ms: float = 0.0  # of a launch, where a neighbouring bucket tells
    failures: dict[Candidate, str] = field(default_factory=dict)
    launches: int = 0

    def __post_init__(self) -> None:
        with self._memory_watched("synthetic inputs"):
            tensors: list[Any] = self.tuner._prepare_input_tensors(self.profile, self.ask.inputs)
            hook = getattr(self.ask.config, "inputs_pre_hook", None)  # since 0.6.12
            if hook is not None:
                tensors = list(hook(tensors))
            self._batches = self.tuner._prepare_input_tensors_with_batches(tensors, self.ask.config)
        self._tensors = tensors

    def candidates(self) -> list[Candidate]:
        """Return every tactic that fits, and the default one, which is measured too."""
        found: list[Candidate] = []
        with self._memory_watched("list of tactics"):
            for number, runner in enumerate(self.ask.runners):
                tactics = runner.get_valid_tactics(self._tensors, self.profile)
                tactics = allowed(self.tuner, self.ask.op, runner, tactics)
                if number == 0 and DEFAULT.tactic not in tactics:
                    tactics = [DEFAULT.tactic, *tactics]
                found += [Candidate(number, plain_tactic(tactic)) for tactic in tactics]
        return found

    def prepare(self, share: Sequence[Candidate]) -> None:
        """Do what FlashInfer does before it times a runner, but compile only the tactics in `share`. The
        first should be a likely winner."""
        for number, runner in enumerate(self.ask.runners):
            tactics = [candidate.tactic for candidate in share if candidate.runner == number]
            if not tactics or "do_preparation" not in inspect.signature(runner.forward).parameters:
                continue
            with self._memory_watched("preparation"), self.tuner.measuring():
                if not precompile(runner, self._tensors, tactics, self.profile, **self.ask.kwargs):
                    self._prepare(number, tactics[0])

    def _prepare(self, number: int, likely: Any) -> None:
        runner = self.ask.runners[number]
        if launches_when_prepared(runner):
            try:
                runner(self._tensors, tactic=likely, do_preparation=True, **self.ask.kwargs)
                return
            except Exception as error:  # noted when it is timed
                if is_out_of_memory(error):
                    raise
                self._clear_device_error(Candidate(number, likely), error)
        runner(self._tensors, tactic=DEFAULT.tactic, do_preparation=True, **self.ask.kwargs)

    def load(self, candidates: Sequence[Candidate]) -> None:
        """Load the candidates' kernel code, which the first launch of each does."""
        self.prepare(candidates)
        self._first_launches(candidates)

    @property
    def queues(self) -> bool:
        return self.tuner.queues and not measured_alone(self.tuner, self.ask.config)

    def clock(self, candidates: Sequence[Candidate], launches: int) -> list[float]:
        """Return milliseconds per launch of each tactic; infinite if it failed, with its error kept."""
        self.launches += launches * len(candidates)
        if not self.queues:
            effort = Effort(0, launches, self.tuner.delay_us(launches, self.expected_ms))
            return [self.measure(candidate, effort) for candidate in candidates]
        times: list[float] = []
        step = max(1, MOST_QUEUED // launches)
        for first in range(0, len(candidates), step):
            times += self._queued(candidates[first : first + step], launches)
        return times

    def _queued(self, candidates: Sequence[Candidate], launches: int) -> list[float]:
        """Time candidates one after the other with one synchronisation; if one fails, measure each alone."""
        self._first_launches([c for c in candidates if (self.ask.op, c) not in self.tuner.launched])
        sound = [candidate for candidate in candidates if candidate not in self.failures]
        if not sound:
            return [inf] * len(candidates)
        kernels = [self._launch(candidate) for candidate in sound]
        try:
            with self._memory_watched("a race"), self.tuner.measuring(), measurement_scope():
                found = self.tuner.queue.times(kernels, launches, self.expected_ms)
        except TuningOutOfMemory:
            raise
        except Exception:  # which of them it was is found out by measuring each alone
            effort = Effort(0, launches, self.tuner.delay_us(launches, self.expected_ms))
            found = [self.measure(candidate, effort) for candidate in sound]
        self.expected_ms = min(found, default=self.expected_ms)
        left = iter(found)
        return [inf if candidate in self.failures else next(left) for candidate in candidates]

    def _first_launches(self, candidates: Sequence[Candidate]) -> None:
        """Launch each candidate once, which loads its code: all together, or one by one if that fails."""
        if not candidates:
            return
        try:
            with self._memory_watched("first launches"), self.tuner.measuring(), measurement_scope():
                for candidate in candidates:
                    self._launch(candidate)()
                torch.cuda.synchronize()
        except TuningOutOfMemory:
            raise
        except Exception:
            for candidate in candidates:
                self.measure(candidate, Effort(0, 1, 0))
        self.tuner.launched.update((self.ask.op, candidate) for candidate in candidates)

    def _launch(self, candidate: Candidate) -> Any:
        runner, tensors = self.ask.runners[candidate.runner], self._batches[0]
        return lambda: runner(tensors, tactic=candidate.tactic, **self.ask.kwargs)

    def measure(self, candidate: Candidate, effort: Effort) -> float:
        """Measure with FlashInfer's own clock, with a synchronisation per candidate."""
        ask, runner, tactic = self.ask, self.ask.runners[candidate.runner], candidate.tactic
        if candidate in self.failures:
            return inf
        if (ask.op, candidate) not in self.tuner.launched:
            # The first launch of a kernel loads its code.
            effort = replace(effort, warmup=effort.warmup + 1)
            self.tuner.launched.add((ask.op, candidate))
        try:
            with self._memory_watched(f"tactic {tactic}"), self.tuner.measuring(effort):
                return time_tactic(
                    self.tuner, runner, self._tensors, tactic, ask.config, self._batches, **ask.kwargs
                )
        except TuningOutOfMemory:
            raise
        except Exception as error:  # a tactic may fail in any way; it only loses
            self.failures[candidate] = first_line(error)
            self._clear_device_error(candidate, error)
            return inf

    def _clear_device_error(self, candidate: Candidate, error: Exception) -> None:
        """Clear the error that most failing kernels leave; after some of them the process is lost."""
        if not torch.cuda.is_available():
            return
        with suppress(RuntimeError):
            torch.cuda.synchronize()
        with suppress(AttributeError, RuntimeError):  # not every torch exposes it
            torch.cuda.cudart().cudaGetLastError()
        try:
            torch.cuda.synchronize()
        except RuntimeError as lost:
            raise AutotuneError(
                f"tactic {candidate.tactic} broke the GPU's context ({first_line(error)}): "
                "list it in a FLASHINFER_TACTICS_BLOCKLIST file"
            ) from lost

    def _memory_watched(self, what: str) -> AbstractContextManager[None]:
        return memory_watched(f"{what} of {self.ask.where(self.profile)}")

    def warm_clock(self, candidate: Candidate, seconds: float) -> None:
        """Run a kernel for a while, once per process, because idle devices are slow."""
        end = time.perf_counter() + (0 if self.tuner.is_warm else seconds)
        self.tuner.is_warm = True
        while time.perf_counter() < end and candidate not in self.failures:
            self.clock([candidate], WHOLE_TURN)
