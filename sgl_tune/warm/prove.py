"""The proof: a fresh process does what the next start does, with FlashInfer's stock loader and lookups.

It loads each written file, replays the forward at every bucket, and says what was asked, what was found, and
how long the tuned and the untuned forward take.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sgl_tune.processes.child import Child
from sgl_tune.warm.compilations import Compilations, counted
from sgl_tune.warm.events import DONE
from sgl_tune.warm.imports import only_for
from sgl_tune.warm.job import CacheJob, make_device, read_job
from sgl_tune.warm.turns import in_turns

if TYPE_CHECKING:
    from flashinfer.autotuner import AutoTuner

    from runtime.devices.base import Device
    from runtime.start.rehearsal import Rehearsal

_PATIENCE_SECONDS = 3.0
_FIRST_LINE = 300


def main(child: Child) -> None:
    told, started = child.command(), time.perf_counter()
    only_for(told["device"])
    _import()
    imported = time.perf_counter() - started
    for command in child.commands():
        job = read_job(command["job"])
        started = time.perf_counter()
        device = make_device(job.device, job.gpus[0] if job.gpus else 0)
        tuner = stock_tuner(job.device)
        opened = time.perf_counter() - started
        proofs = [_prove(cache, device, tuner) for cache in job.caches]
        steps = {"device": opened, **summed(proof.pop("steps") for proof in proofs)}
        child.say(DONE, proofs=proofs, steps={"imports_before": imported, **steps})
        imported = 0.0
        device.empty_cache()


def _import() -> None:
    """All that takes long and needs no GPU: a prover is started while the search still runs."""
    with suppress(Exception):  # it fails again, and is told, where it is used
        import flashinfer.fused_moe  # noqa: F401
        import triton  # noqa: F401  to be heard from its first kernel on
    with suppress(Exception):
        import runtime.autotune.record
        import runtime.devices.cuda
        import runtime.start.rehearsal  # noqa: F401


def summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total = Counter[str]()
    for part in parts:
        total.update(part)  # type: ignore[arg-type]
    return dict(total)


def stock_tuner(device: str) -> AutoTuner:
    """FlashInfer's own; without CUDA it needs a clock, and nothing else, that is not its own."""
    from flashinfer.autotuner import AutoTuner

    if device != "cuda":
        from runtime.autotune.cpu_clock import CpuClock

        AutoTuner._instance = CpuClock()
    tuner = AutoTuner.get()
    tuner.stats = type(tuner.stats)()  # of this deployment alone
    return tuner


def _prove(cache: CacheJob, device: Device, tuner: AutoTuner) -> dict[str, Any]:
    from runtime.autotune.record import record_asked
    from runtime.start.rehearsal import Rehearsal

    tuner.clear_cache()
    started = time.perf_counter()
    accepted = [tuner.load_configs(str(path)) for path in cache.files]
    load_seconds = time.perf_counter() - started
    started = time.perf_counter()
    on_gpu = device.torch_device.type == "cuda"
    with counted(on_gpu) as tuned:
        rehearsal = Rehearsal(cache.model, cache.parallel, cache.runtime, device)
        built, started = time.perf_counter() - started, time.perf_counter()
        with record_asked() as record:
            rehearsal.forward_all(cache.serving_rows)
            missing = {entry.file_key for entry in record.missed}
            if all(accepted) and not missing:
                _ask_as_a_start_does(cache, rehearsal, device)
    replayed, started = time.perf_counter() - started, time.perf_counter()
    missing |= {entry.file_key for entry in record.missed}
    missing |= set(cache.keys) - tuner._file_configs.keys()
    forward, untuned = _compare(tuner, rehearsal.forward, cache.serving_rows[0], device)
    compared, started = time.perf_counter() - started, time.perf_counter()
    captured, uncaptured = _capture(rehearsal, cache, device)
    graphed = time.perf_counter() - started
    return {
        "asked": len(record.asked),
        "hits": record.hits,
        "misses": sorted(missing),
        "ignored": [str(path) for path, loaded in zip(cache.files, accepted, strict=True) if not loaded],
        "profiled": dict(tuner.stats.tuned_op_successful_configs),
        "load_seconds": load_seconds,
        "forward": forward,
        "compiled": {
            "tuned": tuned.of_a_server,
            "untuned": untuned.of_a_server,
            "captured": captured.of_a_server,
        },
        "own_kernels": sum(len(one.triton) for one in (tuned, untuned, captured)),
        "uncaptured": uncaptured,
        "steps": {
            "load": load_seconds,
            "layer": built,
            "replay": replayed,
            "compare": compared,
            "capture": graphed,
        },
    }


def _capture(rehearsal: Rehearsal, cache: CacheJob, device: Device) -> tuple[Compilations, str | None]:
    """As a decode graph, which a CPU has not, and why it could not be: that says nothing of the files."""
    if device.torch_device.type != "cuda":
        return Compilations(), None
    rows = max(cache.runtime.decode_graphs, default=cache.serving_rows[-1])
    uncaptured = None
    with counted() as seen:
        try:
            rehearsal.capture(rows)
        except Exception as error:
            uncaptured = first_line(error)
    return seen, uncaptured


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:_FIRST_LINE]


def _ask_as_a_start_does(cache: CacheJob, rehearsal: Rehearsal, device: Device) -> None:
    """In tuning mode an entry also needs the policy it is asked with; without it, it is tuned now."""
    from runtime.autotune.installed import tuning_mode

    with device.side_stream(), tuning_mode(cache.skip_ops):
        rehearsal.forward_all(cache.tuning_rows)


def _compare(
    tuner: AutoTuner, forward: Callable[[int], None], rows: int, device: Device
) -> tuple[dict[str, float | int | bool], Compilations]:
    found = tuner._file_configs

    def timed(configs: Any) -> Callable[[], float]:
        def run() -> float:
            tuner._file_configs = configs
            return _milliseconds(forward, rows, device)

        return run

    tuned, untuned = timed(found), timed({})
    try:
        tuned()
        with counted(device.torch_device.type == "cuda") as compiled:
            untuned()
        seen = in_turns(tuned, untuned, _PATIENCE_SECONDS)
    finally:
        tuner._file_configs = found
    told = {
        "rows": rows,
        "tuned_ms": seen.one_ms,
        "untuned_ms": seen.other_ms,
        "gain": seen.gain,
        "turns": seen.turns,
        "clear": seen.clear,
    }
    return told, compiled


def _milliseconds(forward: Callable[[int], None], rows: int, device: Device) -> float:
    device.synchronize()
    started = time.perf_counter()
    forward(rows)
    device.synchronize()
    return (time.perf_counter() - started) * 1e3
