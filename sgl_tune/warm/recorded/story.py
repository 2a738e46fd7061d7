"""The main job of a warm from records: launch, write, prove."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sgl_tune
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.store import Written, write_group
from sgl_tune.cli.out import Output
from sgl_tune.deployment.env import driver_version
from sgl_tune.errors import WorkFailed
from sgl_tune.processes.interruption import Interruption
from sgl_tune.recorded.caches import RecordedCache
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.events import ERROR
from sgl_tune.warm.filling import keep_decided, what_is_kept, writable
from sgl_tune.warm.job import tuned_path
from sgl_tune.warm.launch import Fleet
from sgl_tune.warm.proof import How as How
from sgl_tune.warm.proof import Proof
from sgl_tune.warm.recorded.job import CallCache, CallJob
from sgl_tune.warm.report import Report, read_report
from sgl_tune.warm.result import WarmCache, Warmed
from sgl_tune.warm.search_display import shown
from sgl_tune.warm.workforce import Workforce
from sgl_tune.warm.workforce import workforce as workforce

WORKER, PROVER = "sgl_tune.warm.recorded.worker", "sgl_tune.warm.recorded.prove"


@dataclass(frozen=True, slots=True)
class CallSettings:
    gpus: tuple[int, ...]
    timeout: float
    replacing: bool = False
    proving: bool = True
    device: str = "cuda"

    @property
    def workers(self) -> int:
        return max(1, len(self.gpus))


def warm_records(plan: RecordedPlan, settings: CallSettings, out: Output, force: Workforce) -> Warmed:
    stages: dict[str, float] = {}
    job = _job(plan, settings, force)
    with writable(plan):
        if settings.proving:
            force.call_prover(settings.device)
        with _timed(stages, "tune"):
            report = read_report(_searched(plan, job, settings, out, force))
        force.dismiss_workers()
        with _timed(stages, "write"):
            written = [_written(plan, cache, report, job, number) for number, cache in enumerate(plan.caches)]
        proofs: Sequence[Proof | None] = [None] * len(written)
        steps = {"worker": report.steps}
        if settings.proving:
            with _timed(stages, "prove"):
                proofs, steps["prover"] = _proven(job, written, settings, out, force)
    caches = tuple(map(WarmCache, plan.caches, report.caches, written, proofs))
    return Warmed(plan, caches, stages, steps, report.peak_bytes, settings.workers)


def _job(plan: RecordedPlan, settings: CallSettings, force: Workforce) -> CallJob:
    root = plan.deployment.cache_dir
    caches = tuple(
        CallCache(cache.replayable, tuple(root / path for path in cache.paths)) for cache in plan.caches
    )
    return CallJob(force.folder(), caches, settings.device, settings.gpus, settings.replacing)


def _searched(
    plan: RecordedPlan, job: CallJob, settings: CallSettings, out: Output, force: Workforce
) -> dict[str, Any]:
    fleet = Fleet(settings.workers, settings.device, settings.gpus, settings.timeout)
    out.note(f"{plan.deployment.name}: starting {Devices(fleet.device, fleet.gpus, fleet.workers)}")
    memory_ran_out = False
    with shown(out) as listener:

        def hear(worker: int, event: dict[str, Any]) -> None:
            nonlocal memory_ran_out
            memory_ran_out |= event["kind"] == ERROR and event.get("out_of_memory", False)
            listener(worker, event)

        try:
            return dict(force.search(fleet, {"job": job.to_json()}, hear))
        except WorkFailed as failure:
            # Entries measured while memory ran out may be the wrong ones: none are kept.
            kept = None if memory_ran_out else keep_decided(plan, job.folder, job.replacing)
            raise WorkFailed(f"{failure.message}; {what_is_kept(kept)}", failure.remedy) from None
        except Interruption as interruption:
            kept = keep_decided(plan, job.folder, job.replacing)
            raise interruption.saying(f"the workers were stopped; {what_is_kept(kept)}") from None


def _written(plan: RecordedPlan, cache: RecordedCache, report: Report, job: CallJob, number: int) -> Written:
    entries = dict(read_cache_file(tuned_path(job.folder, number)).entries)
    missing = [key for op in cache.ops for key in op.keys if key not in entries]
    if missing and not report.caches[number].failed:
        raise WorkFailed(f"the search ended without {len(missing)} keys of the record, as {missing[0]}")
    told = report.caches[number]
    manifest = Manifest(
        environment=report.environment,
        sglang=plan.records[0].asked.versions.get("sglang"),
        driver=driver_version(),
        seconds=round(told.seconds, 3),
        tool=sgl_tune.__version__,
        measured={key: one for key, one in told.measured.items() if key in entries},
        races={key: one for key, one in told.races.items() if key in entries},
        routings=report.routings,
    )
    paths = [plan.deployment.cache_dir / path for path in cache.paths]
    return write_group(
        paths, entries, report.environment, manifest=manifest, replace_conflicting=job.replacing
    )


def _proven(
    job: CallJob, written: Sequence[Written], settings: CallSettings, out: Output, force: Workforce
) -> tuple[Sequence[Proof], dict[str, float]]:
    with out.progress("proving in a fresh process") as progress, force.prover(settings.device) as prover:
        try:
            found = prover.prove(job, written, settings.timeout, lambda: progress.advance(0))
        except Interruption as interruption:
            raise interruption.saying("the files are written, their proof is not finished") from None
        return found, prover.steps


@contextmanager
def _timed(stages: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    stages[name] = time.perf_counter() - started
