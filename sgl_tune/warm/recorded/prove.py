"""The proof of a record: a fresh process loads the files with FlashInfer's stock loader, and makes every
recorded call again. What a start asked must be found, and nothing may be measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import runtime.flashinfer.inside.calls  # noqa: F401  before FlashInfer, whose public functions it marks
from runtime.flashinfer.inside.lookups import is_skipped, key_of
from runtime.ghost.inside import hooks
from runtime.moe.flashinfer_call import forget_ranges
from runtime.record.calls import Call, Context
from sgl_tune.processes.child import Child
from sgl_tune.warm.compilations import Compilations, counted
from sgl_tune.warm.events import DONE
from sgl_tune.warm.imports import only_for
from sgl_tune.warm.job import make_device
from sgl_tune.warm.prove import first_line, stock_tuner, summed
from sgl_tune.warm.recorded.job import CallCache, read_call_job
from sgl_tune.warm.turns import in_turns

if TYPE_CHECKING:
    from flashinfer.autotuner import AutoTuner

    from runtime.devices.base import Device
    from runtime.flashinfer.replay import Ready

_PATIENCE_SECONDS = 1.0


def main(child: Child) -> None:
    hooks.install()
    told, started = child.command(), time.perf_counter()
    only_for(told["device"])
    with suppress(Exception):  # it fails again, and is told, where it is used
        import runtime.autotune.record
        import runtime.devices.cuda
        import runtime.flashinfer.replay  # noqa: F401
    imported = time.perf_counter() - started
    for command in child.commands():
        job, started = read_call_job(command["job"]), time.perf_counter()
        device = make_device(job.device, job.gpus[0] if job.gpus else 0)
        tuner = stock_tuner(job.device)
        opened = time.perf_counter() - started
        proofs = [_Proof(cache, device, tuner).made() for cache in job.caches]
        steps = {"device": opened, **summed(proof.pop("steps") for proof in proofs)}
        child.say(DONE, proofs=proofs, steps={"imports_before": imported, **steps})
        imported = 0.0
        device.empty_cache()


class _Proof:
    def __init__(self, cache: CallCache, device: Device, tuner: AutoTuner) -> None:
        from runtime.flashinfer.replay import Pool

        self._cache, self._device, self._tuner = cache, device, tuner
        self._pool = Pool(device.torch_device)
        self._on_gpu = device.torch_device.type == "cuda"

    def made(self) -> dict[str, Any]:
        tuner, steps = self._tuner, dict[str, float]()
        tuner.clear_cache()
        with _timed(steps, "load"):
            accepted = [tuner.load_configs(str(path)) for path in self._cache.files]
        with _timed(steps, "replay"), counted(self._on_gpu) as tuned:
            asked, missing = self._ask()
            if all(accepted) and not missing:
                self._make_all()
        with _timed(steps, "compare"):
            forward, untuned = self._compare()
        with _timed(steps, "capture"):
            captured, uncaptured = self._capture()
        return {
            "asked": len(asked),
            "hits": sum(asked.values()),
            "misses": sorted(missing),
            "ignored": [
                str(path) for path, loaded in zip(self._cache.files, accepted, strict=True) if not loaded
            ],
            "profiled": dict(tuner.stats.tuned_op_successful_configs),
            "load_seconds": steps["load"],
            "forward": forward,
            "compiled": {
                "tuned": tuned.of_a_server,
                "untuned": untuned.of_a_server,
                "captured": captured.of_a_server,
            },
            "own_kernels": 0,
            "uncaptured": uncaptured,
            "steps": steps,
        }

    def _ask(self) -> tuple[dict[str, bool], set[str]]:
        """Each key of the record, and whether FlashInfer's own lookup finds it. Nothing is tuned."""
        asked: dict[str, bool] = {}
        for call in self._cache.calls:
            with self._ready(call) as ready, _only_asked(self._tuner, call) as found, suppress(Exception):
                ready.make()  # the default tactic runs, which may fail: what was asked counts
            asked |= {key: found.get(key, False) for key in call.keys}
        return asked, {key for key, hit in asked.items() if not hit}

    def _make_all(self) -> None:
        """As a start makes them: an entry measured in another way than is asked for would be tuned now."""
        for call in self._cache.calls:
            if call.mode == "tune":
                with self._ready(call) as ready:
                    ready.make()
        self._device.synchronize()

    @contextmanager
    def _ready(self, call: Call, contexts: tuple[Context, ...] | None = None) -> Iterator[Ready]:
        import torch

        from runtime.flashinfer.replay import Ready, opened, tuning_contexts

        own = call.contexts if call.mode == "tune" else tuning_contexts(self._cache.calls)
        with torch.inference_mode(), opened(own if contexts is None else contexts):
            ready = Ready(call, self._pool)
            forget_ranges()
            yield ready
        self._pool.give_back()

    def _compare(self) -> tuple[dict[str, float | int | bool], Compilations]:
        """The largest call, served with the files and without them."""
        tuner, found = self._tuner, self._tuner._file_configs
        call = max(self._cache.calls, key=lambda one: max(size for size, _ in _sizes(one)))
        with self._ready(call, ()) as ready:

            def timed(configs: Any) -> Callable[[], float]:
                def run() -> float:
                    tuner._file_configs = configs
                    self._device.synchronize()
                    started = time.perf_counter()
                    ready.make()
                    self._device.synchronize()
                    return (time.perf_counter() - started) * 1e3

                return run

            tuned, untuned = timed(found), timed({})
            try:
                tuned()
                with counted(self._on_gpu) as compiled:
                    untuned()
                seen = in_turns(tuned, untuned, _PATIENCE_SECONDS)
            finally:
                tuner._file_configs = found
        told = {"rows": max(size for size, _ in _sizes(call)), "turns": seen.turns, "clear": seen.clear}
        times = {"tuned_ms": seen.one_ms, "untuned_ms": seen.other_ms, "gain": seen.gain}
        return {**told, **times}, compiled

    def _capture(self) -> tuple[Compilations, str | None]:
        """As a decode graph, and why it could not be: that says nothing of the files."""
        if not self._on_gpu:
            return Compilations(), None
        from runtime.autotune.layer import Graphs

        uncaptured = None
        with counted() as seen, self._ready(self._cache.calls[0], ()) as ready:
            try:
                ready.make()
                Graphs().captured(ready.make)
            except Exception as error:
                uncaptured = first_line(error)
        return seen, uncaptured


def _sizes(call: Call) -> tuple[tuple[int, str], ...]:
    return tuple(one for lookup in call.lookups for one in lookup.keys)


@contextmanager
def _timed(steps: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    steps[name] = time.perf_counter() - started


@contextmanager
def _only_asked(tuner: Any, call: Call) -> Iterator[dict[str, bool]]:
    """Each key that is asked for, and whether it is found; the default tactic is what the caller gets."""
    from runtime.autotune.installed import effective_config, search

    found: dict[str, bool] = {}

    def choose_one(op: str, runners: Any, config: Any, inputs: Any, **_: Any) -> Any:
        if not is_skipped(tuner, op):
            config = effective_config(tuner, config)
            for profile in tuner._generate_optimization_profiles(config, inputs):
                shapes = profile.get_opt_shapes()
                hit, _number, _tactic = search(tuner, op, runners, shapes, config, inputs, tuning=True)
                found[key_of(tuner, op, runners[0], shapes, config, inputs)] = hit
        return runners[0], -1

    tuner.choose_one = choose_one
    try:
        yield found
    finally:
        del tuner.choose_one
