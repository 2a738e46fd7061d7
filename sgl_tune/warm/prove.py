"""The proof: a fresh process does what the next start does, with FlashInfer's stock loader and lookups. It
loads each written file, looks up every entry, and reports the lookups, the hits, and how long the largest
forward takes with and without the files."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from sgl_tune.processes.child import Child
from sgl_tune.warm.compilations import Compilations, counted
from sgl_tune.warm.events import DONE
from sgl_tune.warm.job import CacheJob, make_device, only_for, read_job

if TYPE_CHECKING:
    from flashinfer.autotuner import AutoTuner

    from runtime.devices.base import Device


_FIRST_LINE = 300
_BY_BOTH = ("flashinfer.fused_moe", "triton", "runtime.autotune.record", "runtime.devices.cuda")
_MOST_TURNS = 64
# Noise favours either side in turn: a clear winner wins this many standard deviations more than half.
_CLEAR = 3.0


def main(child: Child) -> None:
    serve(child, CoreProof, ("runtime.start.rehearsal",))


def serve(child: Child, proof: type[CacheProof], modules: tuple[str, ...]) -> None:
    """Do one proof. First, while the search still runs, import what takes long without a GPU."""
    told, started = child.command(), time.perf_counter()
    only_for(told["device"])
    for name in (*_BY_BOTH, *modules):
        with suppress(Exception):  # it fails again and is reported when it is used
            import_module(name)
    imported = time.perf_counter() - started
    job, started = read_job(child.command()["job"]), time.perf_counter()
    device = make_device(job.device, job.gpus[0] if job.gpus else 0)
    tuner = stock_tuner(job.device)
    opened = time.perf_counter() - started
    proofs = [proof(cache, device, tuner).made() for cache in job.caches]
    steps = Counter[str]({"imports_before": imported, "device": opened})  # type: ignore[dict-item]
    for one in proofs:
        steps.update(one.pop("steps"))
    child.say(DONE, proofs=proofs, steps=steps)


def stock_tuner(device: str) -> AutoTuner:
    """Return FlashInfer's own tuner. Without CUDA, only its clock is replaced."""
    from flashinfer.autotuner import AutoTuner

    if device != "cuda":
        from runtime.autotune.cpu_clock import CpuClock

        AutoTuner._instance = CpuClock()
    return AutoTuner.get()


class Answers(NamedTuple):
    asked: int
    hits: int
    missing: set[str]


class CacheProof(ABC):
    """The proof of one cache. A subclass makes the lookups."""

    patience_seconds = 3.0

    def __init__(self, cache: Any, device: Device, tuner: AutoTuner) -> None:
        self._cache, self._device, self._tuner = cache, device, tuner
        self._on_gpu = device.torch_device.type == "cuda"
        self._steps: dict[str, float] = {}

    @abstractmethod
    def ask(self, as_a_start: bool) -> Answers:
        """Look up every entry as a serving server does. `as_a_start`: if all are found, look them up again
        as a start that tunes."""

    @abstractmethod
    def largest(self) -> AbstractContextManager[tuple[int, Callable[[], object]]]:
        """Return the forward with the most rows, and how many rows these are."""

    @abstractmethod
    def capture(self) -> None:
        """Capture a forward as a decode graph."""

    def made(self) -> dict[str, Any]:
        tuner, steps = self._tuner, self._steps
        tuner.clear_cache()
        with _timed(steps, "load"):
            accepted = [tuner.load_configs(str(path)) for path in self._cache.files]
        with _timed(steps, "replay"), counted(self._on_gpu) as tuned:
            answers = self.ask(as_a_start=all(accepted))
        steps["replay"] -= steps.get("layer", 0.0)
        with _timed(steps, "compare"):
            forward, untuned = self._compare()
        with _timed(steps, "capture"):
            captured, uncaptured = self._capture()
        seen = {"tuned": tuned, "untuned": untuned, "captured": captured}
        return {
            "asked": answers.asked,
            "hits": answers.hits,
            "misses": sorted(answers.missing),
            "ignored": [
                str(path) for path, loaded in zip(self._cache.files, accepted, strict=True) if not loaded
            ],
            "profiled": dict(tuner.stats.tuned_op_successful_configs),
            "load_seconds": steps["load"],
            "forward": forward,
            "compiled": {name: one.of_a_server for name, one in seen.items()},
            "own_kernels": sum(len(one.triton) for one in seen.values()),
            "uncaptured": uncaptured,
            "steps": steps,
        }

    def _compare(self) -> tuple[dict[str, float | int | bool], Compilations]:
        tuner, found = self._tuner, self._tuner._file_configs
        with self.largest() as (rows, forward):

            def timed(configs: Any) -> Callable[[], float]:
                def run() -> float:
                    tuner._file_configs = configs
                    self._device.synchronize()
                    started = time.perf_counter()
                    forward()
                    self._device.synchronize()
                    return (time.perf_counter() - started) * 1e3

                return run

            tuned, untuned = timed(found), timed({})
            try:
                tuned()
                with counted(self._on_gpu) as compiled:
                    untuned()
                seen = _in_turns(tuned, untuned, self.patience_seconds)
            finally:
                tuner._file_configs = found
        return {"rows": rows, **seen}, compiled

    def _capture(self) -> tuple[Compilations, str | None]:
        """Capture a graph; return its compilations, and why there is none, as on a CPU."""
        uncaptured = None
        with counted(self._on_gpu) as seen:
            try:
                if self._on_gpu:
                    self.capture()
            except Exception as error:
                uncaptured = (str(error).strip() or type(error).__name__).splitlines()[0][:_FIRST_LINE]
        return seen, uncaptured


class CoreProof(CacheProof):
    """The proof of a core's cache: one layer of each kind of the core's model makes the lookups."""

    _cache: CacheJob

    def ask(self, as_a_start: bool) -> Answers:
        from runtime.autotune.installed import tuning_mode
        from runtime.autotune.record import record_asked
        from runtime.start.rehearsal import Rehearsal

        cache = self._cache
        with _timed(self._steps, "layer"):
            self._rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, self._device)
        with record_asked() as record:
            self._rehearsal.forward_all(cache.serving_rows)
            if as_a_start and not record.missed:
                # In tuning mode an entry must also have the policy of the lookup, or it is tuned now.
                with self._device.side_stream(), tuning_mode(cache.skip_ops):
                    self._rehearsal.forward_all(cache.tuning_rows)
        missing = {entry.file_key for entry in record.missed}
        missing |= set(cache.keys) - self._tuner._file_configs.keys()
        return Answers(len(record.asked), record.hits, missing)

    def largest(self) -> AbstractContextManager[tuple[int, Callable[[], object]]]:
        rows = self._cache.serving_rows[0]
        return nullcontext((rows, lambda: self._rehearsal.forward(rows)))

    def capture(self) -> None:
        rows = max(self._cache.runtime.graphs.decode, default=self._cache.serving_rows[-1])
        self._rehearsal.capture(rows)


@contextmanager
def _timed(steps: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    steps[name] = time.perf_counter() - started


def _in_turns(
    tuned: Callable[[], float], untuned: Callable[[], float], seconds: float
) -> dict[str, float | int | bool]:
    """Compare two functions, which return their milliseconds, in turns. Each turn changes which goes
    first. `gain`: the untuned one's time divided by the tuned one's, in the median turn."""
    ones, others = list[float](), list[float]()
    end = time.perf_counter() + seconds
    while True:
        order = [(tuned, ones), (untuned, others)]
        for run, times in order if len(ones) % 2 == 0 else order[::-1]:
            times.append(run())
        turns = len(ones)
        won = sum(ours < theirs for ours, theirs in zip(ones, others, strict=True))
        clear = abs(won - turns / 2) >= _CLEAR * math.sqrt(turns) / 2
        if clear or turns == _MOST_TURNS or time.perf_counter() >= end:
            gain = median(theirs / ours for ours, theirs in zip(ones, others, strict=True))
            times_ms = {"tuned_ms": median(ones), "untuned_ms": median(others)}
            return {**times_ms, "gain": gain, "turns": turns, "clear": clear}
