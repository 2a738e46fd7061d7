"""The result of a replay: which entries now lose to the default, and whether all became slower."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sgl_tune.cache.asked import Timed
from sgl_tune.cache.manifest import Manifest
from sgl_tune.units import count, some
from sgl_tune.verify.environment import Target
from sgl_tune.verify.findings import Finding, finding

# A choice that loses to the default by less than this is as good as the default.
SLACK = 0.05
# The search measured the default in few launches, so gains are compared roughly.
LEAST_GAIN = 1.1

State = Literal["holds", "beaten", "faded", "fails"]


class ReplayedCache(NamedTuple):
    """The replay of a cache. `path`: the file whose entries were timed."""

    path: Path
    judgements: "tuple[Judgement, ...]"
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "drift": drift(self.judgements),
            "entries": [one.to_json() for one in self.judgements],
        }


class Judgement(NamedTuple):
    """An entry, timed again. `then_*`: times of the search, from the manifest. A gain is the default's
    time divided by the choice's."""

    now: Timed
    state: State
    then_best_ms: float | None
    then_default_ms: float | None

    @property
    def gain(self) -> float | None:
        return _gain(self.now.best_ms, self.now.default_ms)

    @property
    def then_gain(self) -> float | None:
        return _gain(self.then_best_ms, self.then_default_ms)

    @property
    def name(self) -> str:
        return f"{self.now.op.rsplit('::', 1)[-1]} bucket {self.now.bucket}"

    def to_json(self) -> dict[str, Any]:
        then = {"then_best_ms": self.then_best_ms, "then_default_ms": self.then_default_ms}
        return {**self.now._asdict(), "state": self.state, **then}


def judge_replay(
    path: Path, entries: Iterable[Timed], manifest: Manifest | None, target: Target
) -> ReplayedCache:
    """Judge the timed entries. The manifest's times count only for the file it was written with."""
    written = manifest.files.get(path.name) if manifest else None
    told = manifest.measured if manifest and written == sha256(path.read_bytes()).hexdigest() else {}
    judged = [_judged(entry, told.get(entry.key, {})) for entry in entries]
    return ReplayedCache(path, tuple(judged), tuple(_findings(judged, path.parent, manifest, target)))


def _judged(now: Timed, told: Mapping[str, float | None]) -> Judgement:
    best, default = told.get("best_ms"), told.get("default_ms")
    return Judgement(now, _state(now, _gain(best, default)), best, default)


def _state(now: Timed, then: float | None) -> State:
    if now.best_ms is None:
        return "fails"
    gain = _gain(now.best_ms, now.default_ms)
    if gain is None:
        return "holds"  # the default itself cannot run
    if gain < 1 - SLACK:
        return "beaten"
    if then is not None and then > LEAST_GAIN and gain - 1 < (then - 1) / 2:
        return "faded"
    return "holds"


def _gain(best: float | None, default: float | None) -> float | None:
    return default / best if best and default else None


def replay_line(replayed: Sequence[ReplayedCache]) -> str:
    """Return a sentence with how many of the timed choices hold."""
    states = [judged.state for one in replayed for judged in one.judgements]
    lost = sum(state in ("beaten", "fails") for state in states)
    faded = states.count("faded")
    said = f"timed again, {len(states) - lost} of {count(len(states), 'choice')} hold"
    said += f", {faded} of them with less than half of the gain" if faded else ""
    return said + (f", {lost} no longer" if lost else "")


def drift(judgements: Sequence[Judgement]) -> float | None:
    """Return how many times slower the same kernels are now: by the clock or the driver, not by an entry."""
    ratios = [
        one.now.best_ms / one.then_best_ms for one in judgements if one.now.best_ms and one.then_best_ms
    ]
    return sorted(ratios)[len(ratios) // 2] if ratios else None


def _findings(
    judgements: Sequence[Judgement], folder: Path, manifest: Manifest | None, target: Target
) -> Iterator[Finding]:
    for state, code, says in _SAYINGS:
        mine = [one for one in judgements if one.state == state]
        if mine:
            names = some([_with_times(one) for one in mine])
            yield finding(code, f"{count(len(mine), 'entry')} ({names}): {says}", where=folder)
    now = drift(judgements)
    if now is not None and abs(now - 1) > SLACK:
        before = manifest.driver if manifest else None
        drivers = f" (driver {before} then, {target.driver or 'unknown'} now)" if before else ""
        message = f"the same kernels take {now:.2f} times what they took when they were tuned{drivers}"
        yield finding("other-clocks", message, where=folder)


_SAYINGS: tuple[tuple[State, str, str], ...] = (
    ("fails", "replay-fails", "its kernel fails on this machine"),
    ("beaten", "stale-choice", f"the default is faster now, by more than {SLACK:.0%}"),
    ("faded", "faded-choice", "less than half of its gain over the default is left"),
)


def _with_times(one: Judgement) -> str:
    if one.now.failed:
        return f"{one.name}: {one.now.failed}"
    if one.state == "faded" and one.gain and one.then_gain:
        return f"{one.name}: {one.then_gain:.2f}x then, {one.gain:.2f}x now"
    return f"{one.name}: {one.now.best_ms:.3f} ms, the default {one.now.default_ms:.3f} ms"
