"""A warm in order: search, write, prove. A plan of the core and a plan of a record differ only in their
job."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import sgl_tune
from sgl_tune.cache.asked import CachePlan
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import read_cache_file
from sgl_tune.cache.remove import forget
from sgl_tune.cache.store import Written, write_group
from sgl_tune.cache.transaction import locked
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import deployment_to_json
from sgl_tune.deployment.versions import driver_version
from sgl_tune.errors import WorkFailed
from sgl_tune.keys.plan import Plan
from sgl_tune.processes.interruption import Interruption
from sgl_tune.processes.scratch import Scratch, scratch
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.events import ERROR
from sgl_tune.warm.job import CallCache, Job, make_job, tuned_path
from sgl_tune.warm.launch import Fleet, Workers
from sgl_tune.warm.proof import HERE, How, Proof, Prover
from sgl_tune.warm.result import CacheReport, Report, WarmCache, Warmed, read_report
from sgl_tune.warm.search_display import shown


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a warm. `how`: what runs in the processes that search and prove."""

    devices: Devices
    timeout: float
    replacing: bool = False
    proving: bool = True
    how: How = HERE


@dataclass
class Story:
    """One warm. `members`: what a cache's manifest says beside its measurements."""

    plan: Plan | RecordedPlan
    job: Job
    settings: Settings
    out: Output
    private: Scratch
    members: Callable[[Any], Mapping[str, Any]]
    memory_ran_out: bool = False
    stages: dict[str, float] = field(default_factory=dict)

    def run(self) -> Warmed:
        with self._writable(), ExitStack() as processes:
            prover = None
            if self.settings.proving:  # it imports while the workers search
                prover = Prover(self.private, self.settings.devices.kind, self.settings.how)
                processes.callback(prover.close)
            with self._stage("tune"):
                report = read_report(self._search())
            with self._stage("write"):
                written = self._write(report)
            proofs: Sequence[Proof | None] = [None] * len(written)
            steps = {"worker": report.steps}
            if prover is not None:
                with self._stage("prove"):
                    proofs = self._prove(prover, written)
                steps["prover"] = prover.steps
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
        devices, how = self.settings.devices, self.settings.how
        self.out.note(f"{self.plan.deployment.name}: starting {devices}")
        fleet = Fleet(devices.workers, devices.kind, devices.gpus, self.settings.timeout)
        with shown(self.out) as listener:

            def hear(worker: int, event: dict[str, Any]) -> None:
                self.memory_ran_out |= event["kind"] == ERROR and event.get("out_of_memory", False)
                listener(worker, event)

            try:
                with Workers(how.worker, self.private, fleet, how.python) as workers:
                    return workers.run({"job": self.job.to_json()}, hear)
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

    def _write(self, report: Report) -> list[Written]:
        caches = zip(self.plan.caches, report.caches, strict=False)
        written = [self._written(n, cache, told, report) for n, (cache, told) in enumerate(caches)]
        for note in dict.fromkeys(note for cache in written for note in cache.notes):
            self.out.note(note)
        return written

    def _written(self, number: int, cache: CachePlan, told: CacheReport, report: Report) -> Written:
        entries = read_cache_file(tuned_path(self.job.folder, number)).entries
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

    def _prove(self, prover: Prover, written: Sequence[Written]) -> Sequence[Proof]:
        with self.out.progress("proving in a fresh process") as progress:
            try:
                return prover.prove(self.job, written, self.settings.timeout, lambda: progress.advance(0))
            except Interruption as interruption:
                raise interruption.saying("the files are written, their proof is not finished") from None


def _what_is_kept(kept: int | None) -> str:
    if kept is None:
        return "nothing was written"
    if kept:
        return f"{kept} decided entries are kept: the same command goes on from there"
    return "the cache is as it was"


def warm_deployment(plan: Plan, settings: Settings, out: Output) -> Warmed:
    devices = settings.devices

    def members(cache: CachePlan) -> Mapping[str, Any]:
        deployment = plan.deployment
        told = {"deployment": deployment_to_json(deployment), "sglang": deployment.inputs.sglang_version}
        return {"key_parts": cache.key_parts, **told}

    with scratch() as private:
        job = make_job(plan, private.folder, devices.kind, devices.gpus, settings.replacing)
        return Story(plan, job, settings, out, private, members).run()


def warm_records(plan: RecordedPlan, settings: Settings, out: Output) -> Warmed:
    root, devices = plan.deployment.cache_dir, settings.devices
    caches = tuple(
        CallCache(cache.replayable, tuple(root / path for path in cache.paths)) for cache in plan.caches
    )
    with scratch() as private:
        job = Job(private.folder, caches, devices.kind, devices.gpus, settings.replacing)
        return Story(plan, job, settings, out, private, lambda _: {"sglang": plan.sglang}).run()
