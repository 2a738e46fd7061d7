"""A warm in order: search, write, prove. A plan of the core and a plan of a record differ only in their
job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sgl_tune
from sgl_tune.cache.asked import CachePlan
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import parse_key, read_cache_file
from sgl_tune.cache.remove import forget
from sgl_tune.cache.store import Written, write_group
from sgl_tune.cache.transaction import locked
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import deployment_to_json
from sgl_tune.deployment.versions import driver_version
from sgl_tune.errors import WorkFailed
from sgl_tune.keys.plan import Plan
from sgl_tune.processes.interruption import Interruption
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.events import ERROR
from sgl_tune.warm.job import CallCache, Job, make_job, tuned_path
from sgl_tune.warm.launch import Fleet
from sgl_tune.warm.proof import Proof, Prover
from sgl_tune.warm.result import CacheReport, Report, WarmCache, Warmed, read_report
from sgl_tune.warm.search_display import shown
from sgl_tune.warm.workforce import Workforce

WORKER, PROVER = "sgl_tune.warm.recorded.worker", "sgl_tune.warm.recorded.prove"


@dataclass(frozen=True, slots=True)
class Settings:
    devices: Devices
    timeout: float
    replacing: bool = False
    proving: bool = True


@dataclass
class Story:
    """One warm. `members`: what a cache's manifest says beside its measurements. `completed`: adds to the
    entries what other ranks of the group look up."""

    plan: Plan | RecordedPlan
    job: Job
    settings: Settings
    out: Output
    force: Workforce
    members: Callable[[Any], Mapping[str, Any]]
    completed: Callable[[dict[str, Any], Any], dict[str, Any]] = lambda entries, _: entries
    is_last: bool = True
    memory_ran_out: bool = False
    stages: dict[str, float] = field(default_factory=dict)

    def run(self) -> Warmed:
        with self._writable():
            if self.settings.proving:
                self.force.call_prover(self.settings.devices.kind)
            with self._stage("tune"):
                report = read_report(self._search())
            if self.is_last:
                self.force.dismiss_workers()
            with self._stage("write"):
                written = self._write(report)
            proofs: Sequence[Proof | None] = [None] * len(written)
            steps = {"worker": report.steps}
            if self.settings.proving:
                with self._stage("prove"):
                    proofs, steps["prover"] = self._prove_with_room(written)
        caches = tuple(map(WarmCache, self.plan.caches, report.caches, written, proofs))
        return Warmed(self.plan, caches, self.stages, steps, report.peak_bytes, self.settings.devices.workers)

    @contextmanager
    def _writable(self) -> Iterator[None]:
        """Check before the search that the folders can be written; remove folders that stay unused."""
        root = self.plan.deployment.cache_dir
        folders = [root / cache.folder for cache in self.plan.caches]
        try:
            for folder in folders:
                with locked(folder):
                    pass
            yield
        except BaseException:
            for folder in folders:
                forget(folder, root)
            raise

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.stages[name] = time.perf_counter() - started

    def _search(self) -> Mapping[str, Any]:
        where = "on the same" if self.force.has_worked else "starting"
        self._note(f"{where} {self.settings.devices}")
        with shown(self.out) as listener:

            def hear(worker: int, event: dict[str, Any]) -> None:
                self.memory_ran_out |= event["kind"] == ERROR and event.get("out_of_memory", False)
                listener(worker, event)

            try:
                return self._search_with_room(hear)
            except WorkFailed as failure:
                # Entries measured while memory ran out may be wrong, so none are kept.
                kept = None if self.memory_ran_out else self._keep_decided()
                raise WorkFailed(f"{failure.message}; {_what_is_kept(kept)}", failure.remedy) from None
            except Interruption as interruption:
                kept = self._keep_decided()
                raise interruption.saying(f"the workers were stopped; {_what_is_kept(kept)}") from None

    def _keep_decided(self) -> int:
        """Write the ops that all workers had decided before the search broke off; return how many entries."""
        kept = 0
        for number, cache in enumerate(self.plan.caches):
            path = tuned_path(self.job.folder, number)
            if path.exists():
                file = read_cache_file(path)
                written = self._write_group(cache, file.entries, file.metadata or {})
                kept += written.added
        return kept

    def _write_group(
        self,
        cache: CachePlan,
        entries: Mapping[str, Any],
        metadata: Mapping[str, str],
        manifest: Manifest | None = None,
    ) -> Written:
        paths = [self.plan.deployment.cache_dir / path for path in cache.paths]
        replacing = self.settings.replacing
        return write_group(
            paths, entries, metadata, manifest=manifest, replace_conflicting=replacing, say=self.out.note
        )

    def _search_with_room(self, hear: Callable[[int, dict[str, Any]], None]) -> Mapping[str, Any]:
        """Search. If memory ran out on workers that had searched earlier deployments, search once more on
        new workers."""
        shared = self.force.has_worked
        devices = self.settings.devices
        fleet = Fleet(devices.workers, devices.kind, devices.gpus, self.settings.timeout)
        try:
            return self.force.search(fleet, {"job": self.job.to_json()}, hear)
        except WorkFailed:
            if not (shared and self.memory_ran_out):
                raise
        self.memory_ran_out = False
        for number in range(len(self.job.caches)):
            tuned_path(self.job.folder, number).unlink(missing_ok=True)
        self._note("out of memory; again on new workers")
        return self.force.search(fleet, {"job": self.job.to_json()}, hear)

    def _write(self, report: Report) -> list[Written]:
        caches = zip(self.plan.caches, report.caches, strict=False)
        written = [self._written(n, cache, told, report) for n, (cache, told) in enumerate(caches)]
        for note in dict.fromkeys(note for cache in written for note in cache.notes):
            self.out.note(note)
        return written

    def _written(self, number: int, cache: CachePlan, told: CacheReport, report: Report) -> Written:
        found = dict(read_cache_file(tuned_path(self.job.folder, number)).entries)
        entries = self.completed(found, cache)
        missing = [key for op in cache.ops for key in op.keys if key not in entries]
        if missing and not told.failed:
            raise WorkFailed(f"the search ended without {len(missing)} keys of the plan, as {missing[0]}")
        manifest = Manifest(
            environment=report.environment,
            driver=driver_version(),
            seconds=round(told.seconds, 3),
            tool=sgl_tune.__version__,
            measured={key: one for key, one in told.measured.items() if key in entries},
            races={key: one for key, one in told.races.items() if key in entries},
            routings=report.routings,
            **self.members(cache),
        )
        return self._write_group(cache, entries, report.environment, manifest)

    def _prove_with_room(self, written: Sequence[Written]) -> tuple[Sequence[Proof], dict[str, float]]:
        shared = self.force.has_worked
        try:
            with self.force.prover(self.settings.devices.kind) as prover:
                return self._prove(prover, written), prover.steps
        except WorkFailed:
            if not shared:
                raise
        self.force.dismiss_workers()
        self._note("the proof failed beside the workers; again without them")
        with self.force.prover(self.settings.devices.kind) as prover:
            return self._prove(prover, written), prover.steps

    def _prove(self, prover: Prover, written: Sequence[Written]) -> Sequence[Proof]:
        with self.out.progress("proving in a fresh process") as progress:
            try:
                return prover.prove(self.job, written, self.settings.timeout, lambda: progress.advance(0))
            except Interruption as interruption:
                raise interruption.saying("the files are written, their proof is not finished") from None

    def _note(self, text: str) -> None:
        self.out.note(f"{self.plan.deployment.name}: {text}")


def _what_is_kept(kept: int | None) -> str:
    if kept is None:
        return "nothing was written"
    if kept:
        return f"{kept} decided entries are kept: the same command goes on from there"
    return "the cache is as it was"


def warm_deployment(plan: Plan, settings: Settings, out: Output, force: Workforce, is_last: bool) -> Warmed:
    devices = settings.devices
    job = make_job(plan, force.folder(), devices.kind, devices.gpus, settings.replacing)

    def members(cache: CachePlan) -> Mapping[str, Any]:
        deployment = plan.deployment
        told = {"deployment": deployment_to_json(deployment), "sglang": deployment.sglang_version}
        return {"key_parts": cache.key_parts, **told}

    return Story(plan, job, settings, out, force, members, _for_every_rank, is_last).run()


def _for_every_rank(entries: dict[str, Any], cache: CachePlan) -> dict[str, Any]:
    """Return the entries for all ranks of a group. Some FlashInfer versions write the rank into keys, and
    the ranks read one content. A planned key takes the value of the key that differs only in the rank."""
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


def warm_records(plan: RecordedPlan, settings: Settings, out: Output, force: Workforce) -> Warmed:
    root, devices = plan.deployment.cache_dir, settings.devices
    caches = tuple(
        CallCache(cache.replayable, tuple(root / path for path in cache.paths)) for cache in plan.caches
    )
    job = Job(force.folder(), caches, devices.kind, devices.gpus, settings.replacing)

    def members(_: Any) -> Mapping[str, Any]:
        return {"sglang": plan.sglang}

    return Story(plan, job, settings, out, force, members).run()
