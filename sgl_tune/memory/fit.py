"""The largest start that fits: flags solved for, each trial a simulated start.

What every phase takes beside the KV pool does not depend on the pool, so one start that may go beyond the GPU
tells which fraction leaves as much as is wanted. That start is then simulated, and the one a notch further.
Where no fraction does, the flag that the tightest phase goes by gives way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from runtime.server.errors import ConfigError
from sgl_tune.errors import CheckFailed
from sgl_tune.memory.goals import Goals
from sgl_tune.memory.report import MemoryReport
from sgl_tune.memory.trial import AS_ASKED, NO_GRAPHS, NOTCHES, Knobs, Trial, Trials, difference
from sgl_tune.units import memory_bytes

_HIGHEST = 990
_FEWEST_REQUESTS, _SHORTEST_CHUNK, _FEWEST_GRAPHS = 16, 256, 8
_SOME_POOL = 20  # notches
_STEPS = 12
_NEARLY = 0.98  # of what is wanted: a notch is worth a little more or less than it seems
_RELIEVED = {
    "decode graphs": "graphs",
    "draft graphs": "graphs",
    "prefill graphs": "chunk",
    "autotune extend": "chunk",
    "autotune": "requests",
    "eager buffers": "requests",
    "ready": "graphs",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Another start that fits as far, and what it costs beside the best."""

    trial: Trial
    what: str


@dataclass(frozen=True, slots=True)
class Fit:
    """`beyond` is the best start a notch further, None where no fraction is higher. It dies, or leaves less
    than is wanted.
    """

    goals: Goals
    asked: MemoryReport
    best: Trial
    beyond: Trial | None
    given_up: tuple[str, ...]
    choices: tuple[Choice, ...]

    @property
    def second(self) -> Choice | None:
        """Of the others the one with the most KV cache."""
        return max(self.choices, key=lambda of: of.trial.tokens, default=None)


@dataclass(frozen=True, slots=True)
class _Blocked:
    """No fraction does: `why` ends the sentence, `phase` is what is tightest then."""

    why: str
    phase: str


class _Solver:
    def __init__(self, trials: Trials, goals: Goals, done: Callable[[], None]) -> None:
        self.trials, self.goals, self.done = trials, goals, done

    def start(self, knobs: Knobs, notch: int) -> Trial:
        """With the GPU's memory; where it dies of that, beyond it."""
        trial = self.trials(knobs, notch)
        self.done()
        if trial.report.verdict == "oom":
            trial = self.trials(knobs, notch, beyond=True)
            self.done()
        return trial

    @property
    def ranks(self) -> int:
        """Which share the requests."""
        return self.trials.first.parallel.attn_dp

    @property
    def tokens_wanted(self) -> int:
        return self.goals.tokens(self.ranks)

    def wanted(self, trial: Trial) -> int:
        return self.goals.free_bytes + trial.report.margin_bytes

    def spare(self, trial: Trial, keeps_prefill_graphs: bool) -> int:
        spare, room = trial.slack - self.wanted(trial), trial.report.sizes.prefill_graphs_room
        if not keeps_prefill_graphs or room is None:
            return spare
        return min(spare, room - trial.report.margin_bytes)

    def highest(
        self,
        knobs: Knobs,
        notch: int,
        first: Trial | None = None,
        is_exact: bool = True,
        keeps_prefill_graphs: bool = False,
    ) -> Trial | _Blocked:
        """The highest fraction that leaves what is wanted, found from `notch`, whose trial may be there.

        A pool grows in steps of 2 MiB a tensor: where it `is_exact`, the notch above has been tried too.
        """
        fitting: Trial | None = None
        lowest_bad = _HIGHEST + 1
        for _ in range(_STEPS):
            trial, first = first or self.start(knobs, notch), None
            if _has_no_pool(trial):
                if notch >= trial.least_notch or trial.least_notch > _HIGHEST:
                    return _Blocked(_weights(trial), "kv pool")
                notch = trial.least_notch
                continue
            if trial.report.verdict == "failed":
                return _Blocked(_failure(trial), trial.report.run.failed_in or "")
            spare = self.spare(trial, keeps_prefill_graphs)
            if blocked := self._hopeless(trial, spare):
                return blocked
            if spare < 0:
                lowest_bad = min(lowest_bad, notch)
            elif trial.flags:
                fitting = trial
            least = fitting.notch if fitting else 0
            if least + 1 == lowest_bad:
                break
            following = notch + spare // trial.notch_bytes
            if fitting and following <= least and not is_exact:
                break
            notch = max(1, min(max(following, least + 1), lowest_bad - 1))
        if fitting is None:
            return _Blocked("no fraction leaves enough", _phase(trial))
        return self._holding(fitting)

    def _hopeless(self, trial: Trial, spare: int) -> _Blocked | None:
        """Told by what a notch is worth, before the fraction is found."""
        if trial.notch + spare // trial.notch_bytes < trial.least_notch:
            return _Blocked(self._too_tight(trial), _phase(trial))
        tokens = trial.tokens + spare // max(1, trial.report.sizes.kv_bytes_per_token or 1)
        return self._too_few(trial, tokens) if tokens < _NEARLY * self.tokens_wanted else None

    def _too_few(self, trial: Trial, tokens: int) -> _Blocked:
        wanted = f"{self.tokens_wanted:,} are wanted ({self.goals})"
        return _Blocked(
            f"the KV cache holds {tokens:,} tokens a rank and {wanted}, {_phase(trial)} being tightest",
            _phase(trial),
        )

    def _holding(self, trial: Trial) -> Trial | _Blocked:
        running = (trial.report.sizes.max_running_requests or 0) * self.ranks
        if trial.tokens < self.tokens_wanted:
            return self._too_few(trial, trial.tokens)
        if running < (self.goals.requests or 0):
            return _Blocked(f"SGLang runs {running:,} requests at once in that KV cache", _phase(trial))
        return trial

    def _too_tight(self, trial: Trial) -> str:
        missing = self.wanted(trial) - trial.slack
        room = max(0, trial.notch - trial.least_notch) * trial.notch_bytes
        return (
            f"{memory_bytes(missing - room)} are missing without any KV cache in {_phase(trial)}: "
            f"{_largest(trial)}"
        )

    def relieved(self, knobs: Knobs, phase: str) -> Knobs | None:
        """The next smaller step of what the phase goes by, else of what is left to give."""
        first = _RELIEVED.get(phase)
        if first is None:
            return None
        steps = (self.less(knobs, name) for name in (first, "graphs", "chunk", "requests"))
        return next(filter(None, steps), None)

    def less(self, knobs: Knobs, name: str) -> Knobs | None:
        value = getattr(knobs, name)
        if not value or (name == "requests" and self.goals.requests):
            return None
        least = {
            "graphs": _FEWEST_GRAPHS,
            "chunk": _SHORTEST_CHUNK * self.ranks,
            "requests": _FEWEST_REQUESTS * self.ranks,
        }[name]
        if value // 2 >= least:
            return replace(knobs, **{name: value // 2})
        return replace(knobs, graphs=NO_GRAPHS) if name == "graphs" else None

    def choices(self, best: Trial) -> Iterator[Choice]:
        if (best.report.sizes.prefill_graphs_room or 0) < 0:
            kept = self.highest(best.knobs, best.notch, is_exact=False, keeps_prefill_graphs=True)
            if isinstance(kept, Trial):
                yield Choice(kept, "prefill graphs kept")
        for name in ("graphs", "chunk", "requests"):
            less = self.less(best.knobs, name)
            if less is None or self._is_refused(less):
                continue
            found = self.highest(less, best.notch, is_exact=False)
            if isinstance(found, Trial):
                yield Choice(found, difference(best.knobs, less))

    def _is_refused(self, knobs: Knobs) -> bool:
        try:
            self.trials.first.asking(**knobs.flags())
        except ConfigError:
            return True
        return False


def fit(trials: Trials, goals: Goals, done: Callable[[], None]) -> Fit:
    solver = _Solver(trials, goals, done)
    asked = trials.as_asked()
    done()
    notch = round((asked.sizes.mem_fraction_static or 0.85) * NOTCHES)
    known = _with_a_pool(solver, Trial.of(asked, AS_ASKED, notch))
    knobs = trials.knobs(known.report, goals.requests)
    first = replace(known, knobs=knobs, flags={}) if goals.requests is None else None
    notch = known.notch
    given_up: list[str] = []
    found = solver.highest(knobs, notch, first)
    while isinstance(found, _Blocked):
        less = solver.relieved(knobs, found.phase)
        if less is None:
            raise CheckFailed(_nothing(found, given_up), goals.way_out)
        given_up.append(difference(knobs, less))
        knobs = less
        found = solver.highest(knobs, notch)
    return _answer(solver, asked, found, given_up)


def _with_a_pool(solver: _Solver, trial: Trial) -> Trial:
    """As asked, or with the lowest fraction that leaves anything for a KV cache."""
    if not _has_no_pool(trial):
        return trial
    if trial.least_notch >= _HIGHEST:
        raise CheckFailed(f"nothing fits: {_weights(trial)}", solver.goals.way_out)
    return solver.start(AS_ASKED, min(_HIGHEST, trial.least_notch + _SOME_POOL))


def _answer(solver: _Solver, asked: MemoryReport, best: Trial, given_up: list[str]) -> Fit:
    beyond = solver.start(best.knobs, best.notch + 1) if best.notch < _HIGHEST else None
    choices = () if given_up else tuple(solver.choices(best))
    return Fit(solver.goals, asked, best, beyond, tuple(given_up), choices)


def _has_no_pool(trial: Trial) -> bool:
    return trial.report.verdict == "failed" and trial.report.run.failed_in == "kv pool"


def _failure(trial: Trial) -> str:
    failure = trial.report.failure
    return "" if failure is None else failure.error.partition(": ")[2]


def _weights(trial: Trial) -> str:
    phase = trial.report.phase("weights")
    taken = 0 if phase is None else phase.allocated_bytes
    return (
        f"the weights take {memory_bytes(taken)} of {memory_bytes(NOTCHES * trial.notch_bytes)} that are free"
    )


def _phase(trial: Trial) -> str:
    return trial.tightest.name if trial.tightest else ""


def _largest(trial: Trial) -> str:
    held = trial.tightest.largest if trial.tightest else ()
    if not held:
        return f"{_phase(trial)} is tightest"
    return f"{_phase(trial)} makes {memory_bytes(held[0].bytes)} at once, {held[0].what} at {held[0].where}"


def _nothing(blocked: _Blocked, given_up: list[str]) -> str:
    tried = f", even with {'; '.join(given_up[-2:])}" if given_up else ""
    return f"nothing fits{tried}: {blocked.why}"
