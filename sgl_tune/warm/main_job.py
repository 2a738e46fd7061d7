"""The main job, in order: check, launch, write, prove."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sgl_tune
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import parse_key, read_cache_file
from sgl_tune.cache.store import Written, write_group
from sgl_tune.cli.out import Output
from sgl_tune.deployment.as_json import deployment_to_json
from sgl_tune.deployment.env import driver_version
from sgl_tune.errors import WorkFailed
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.processes.interruption import Interruption
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.events import ERROR
from sgl_tune.warm.filling import keep_decided, what_is_kept, writable
from sgl_tune.warm.job import Job, make_job, tuned_path
from sgl_tune.warm.launch import Fleet, OnEvent
from sgl_tune.warm.proof import Proof, Prover
from sgl_tune.warm.report import Report, read_report
from sgl_tune.warm.result import WarmCache, Warmed
from sgl_tune.warm.search_display import shown
from sgl_tune.warm.workforce import Workforce
from sgl_tune.warm.workforce import workforce as workforce


@dataclass(frozen=True, slots=True)
class Settings:
    devices: Devices
    timeout: float
    replacing: bool
    proving: bool


@dataclass
class _Clock:
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.stages[name] = time.perf_counter() - started


def warm_deployment(plan: Plan, settings: Settings, out: Output, force: Workforce, is_last: bool) -> Warmed:
    with writable(plan):
        devices = settings.devices
        job = make_job(plan, force.folder(), devices.kind, devices.gpus, settings.timeout, settings.replacing)
        return _Story(plan, settings, job, force, is_last, out).run()


@dataclass
class _Story:
    plan: Plan
    settings: Settings
    job: Job
    force: Workforce
    is_last: bool
    out: Output
    clock: _Clock = field(default_factory=_Clock)
    memory_ran_out: bool = False

    def run(self) -> Warmed:
        if self.settings.proving:
            self.force.call_prover(self.settings.devices.kind)
        with self.clock.stage("tune"):
            found = self._search()
        if self.is_last:
            self.force.dismiss_workers()
        report = read_report(found)
        with self.clock.stage("write"):
            written = self._write(report)
        proofs: Sequence[Proof | None] = [None] * len(written)
        steps = {"worker": report.steps}
        if self.settings.proving:
            with self.clock.stage("prove"):
                proofs, steps["prover"] = self._prove_with_room(written)
        caches = map(WarmCache, self.plan.caches, report.caches, written, proofs)
        stages, workers = self.clock.stages, self.settings.devices.workers
        return Warmed(self.plan, tuple(caches), stages, steps, report.peak_bytes, workers)

    def _search(self) -> Mapping[str, Any]:
        self._say_who()
        with shown(self.out) as listener:

            def hear(worker: int, event: dict[str, Any]) -> None:
                self.memory_ran_out |= event["kind"] == ERROR and event.get("out_of_memory", False)
                listener(worker, event)

            try:
                return self._search_with_room(hear)
            except WorkFailed as failure:
                # Entries measured while memory ran out may be the wrong ones: none are kept.
                kept = None if self.memory_ran_out else self._keep_decided()
                raise WorkFailed(f"{failure.message}; {what_is_kept(kept)}", failure.remedy) from None
            except Interruption as interruption:
                kept = self._keep_decided()
                raise interruption.saying(f"the workers were stopped; {what_is_kept(kept)}") from None

    def _keep_decided(self) -> int:
        return keep_decided(self.plan, self.job.folder, self.job.replacing)

    def _search_with_room(self, hear: OnEvent) -> Mapping[str, Any]:
        """What deployments before it left on the device may be what is missing: then once more without."""
        shared = self.force.has_worked
        try:
            return self._launch(hear)
        except WorkFailed:
            if not (shared and self.memory_ran_out):
                raise
        self.memory_ran_out = False
        for number in range(len(self.job.caches)):
            tuned_path(self.job.folder, number).unlink(missing_ok=True)
        self.out.note(f"{self.plan.deployment.name}: out of memory; again on new workers")
        return self._launch(hear)

    def _launch(self, hear: OnEvent) -> Mapping[str, Any]:
        devices = self.settings.devices
        fleet = Fleet(devices.workers, devices.kind, devices.gpus, self.settings.timeout)
        return self.force.search(fleet, {"job": self.job.to_json()}, hear)

    def _say_who(self) -> None:
        who = (
            f"on the same {self.settings.devices}"
            if self.force.has_worked
            else f"starting {self.settings.devices}"
        )
        self.out.note(f"{self.plan.deployment.name}: {who}")

    def _write(self, report: Report) -> list[Written]:
        replacing, folder = self.settings.replacing, self.job.folder
        written = [
            _write(self.plan, cache, report, tuned_path(folder, number), replacing, self.out.note)
            for number, cache in enumerate(self.plan.caches)
        ]
        for note in dict.fromkeys(note for cache in written for note in cache.notes):
            self.out.note(note)
        return written

    def _prove_with_room(self, written: Sequence[Written]) -> tuple[Sequence[Proof], dict[str, float]]:
        shared = self.force.has_worked
        try:
            with self.force.prover(self.settings.devices.kind) as prover:
                return self._prove(prover, written), prover.steps
        except WorkFailed:
            if not shared:
                raise
        self.force.dismiss_workers()
        self.out.note(f"{self.plan.deployment.name}: the proof failed beside the workers; again without them")
        with self.force.prover(self.settings.devices.kind) as prover:
            return self._prove(prover, written), prover.steps

    def _prove(self, prover: Prover, written: Sequence[Written]) -> Sequence[Proof]:
        with self.out.progress("proving in a fresh process") as progress:
            try:
                return prover.prove(self.job, written, self.settings.timeout, lambda: progress.advance(0))
            except Interruption as interruption:
                raise interruption.saying("the files are written, their proof is not finished") from None


def _write(
    plan: Plan,
    cache: CachePlan,
    report: Report,
    tuned: Path,
    replacing: bool,
    say: Callable[[str], None],
) -> Written:
    file = read_cache_file(tuned)
    entries = _for_every_rank(dict(file.entries), cache)
    deployment = plan.deployment
    manifest = Manifest(
        environment=report.environment,
        key_parts=cache.key_parts,
        deployment=deployment_to_json(deployment),
        sglang=deployment.sglang_version,
        driver=driver_version(),
        seconds=round(sum(one.seconds for one in report.caches), 3),
        tool=sgl_tune.__version__,
        measured={key: told for one in report.caches for key, told in one.measured.items() if key in entries},
        races={key: told for one in report.caches for key, told in one.races.items() if key in entries},
        routings=report.routings,
    )
    paths = [deployment.cache_dir / path for path in cache.paths]
    return write_group(
        paths, entries, report.environment, manifest=manifest, replace_conflicting=replacing, say=say
    )


def _for_every_rank(entries: dict[str, Any], cache: CachePlan) -> dict[str, Any]:
    """Some FlashInfer versions write ranks into keys. The ranks of a group read one content, so it holds the
    keys of all: a planned key takes the value of the one that differs from it only there."""
    by_shape: dict[Any, Any] = {}
    for key, value in entries.items():
        parts = parse_key(key)
        if parts:
            by_shape[parts.op, parts.runner, parts.profile] = value
    for op in cache.ops:
        for key in op.keys:
            parts = parse_key(key)
            if key not in entries and parts and (parts.op, parts.runner, parts.profile) in by_shape:
                entries[key] = by_shape[parts.op, parts.runner, parts.profile]
    return entries
