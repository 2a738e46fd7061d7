"""The main job, in order: check, launch, write, prove."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from sgl_tune import __version__
from sgl_tune.cache.manifest import Manifest
from sgl_tune.cache.record import parse_key, read_cache_file
from sgl_tune.cache.store import Written, write_group
from sgl_tune.cache.transaction import locked
from sgl_tune.cli.out import Output
from sgl_tune.deployment.as_json import deployment_to_json
from sgl_tune.deployment.env import driver_version
from sgl_tune.errors import WorkFailed
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.warm.devices import Devices
from sgl_tune.warm.events import ERROR
from sgl_tune.warm.job import Job, make_job, tuned_path
from sgl_tune.warm.joined import joined_worker
from sgl_tune.warm.launch import Fleet, launch
from sgl_tune.warm.proof import Proof, prove
from sgl_tune.warm.report import CacheReport, Report, read_report
from sgl_tune.warm.talk import talk


@dataclass(frozen=True, slots=True)
class Settings:
    devices: Devices
    timeout: float
    replacing: bool
    proving: bool


@dataclass(frozen=True, slots=True)
class WarmCache:
    """One key's result."""

    plan: CachePlan
    report: CacheReport
    written: Written
    proof: Proof | None

    @property
    def tuned(self) -> int:
        return len(self.report.tuned_keys)

    @property
    def reused(self) -> int:
        return len(self._planned & self.report.known - self.report.tuned_keys)

    @property
    def _planned(self) -> set[str]:
        return {key for op in self.plan.ops for key in op.keys}

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "tuned": self.tuned,
            "reused": self.reused,
            "failed": [failure.to_json() for failure in self.report.failed],
            "proof": self.proof.to_json() if self.proof else None,
            "digest": self.written.digest,
        }


@dataclass(frozen=True, slots=True)
class Warmed:
    plan: Plan
    caches: tuple[WarmCache, ...]
    seconds_by_stage: dict[str, float]
    peak_bytes: int | None
    workers: int

    @property
    def is_proven(self) -> bool:
        return all(cache.proof is None or cache.proof.is_good for cache in self.caches)

    def to_json(self) -> dict[str, Any]:
        target, *drafts = (cache.to_json() for cache in self.caches)
        data = {
            **self.plan.to_json(),
            **target,
            "workers": self.workers,
            "seconds": round(sum(self.seconds_by_stage.values()), 3),
            "seconds_by_stage": {name: round(took, 3) for name, took in self.seconds_by_stage.items()},
            "peak_bytes": self.peak_bytes,
        }
        return {**data, "draft": drafts[0]} if drafts else data


@dataclass
class _Clock:
    stages: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.stages[name] = time.perf_counter() - started


def warm_deployment(plan: Plan, settings: Settings, out: Output) -> Warmed | None:
    """None on a worker that somebody else's launcher started only to help."""
    _check_writable(plan)
    folder = Path(tempfile.mkdtemp(prefix="sgl-tune-"))
    clock = _Clock()
    job = make_job(plan, settings.devices.kind, settings.devices.gpus, settings.timeout, settings.replacing)
    job.save(folder)
    with clock.stage("tune"):
        writes_here = _search(plan, settings, folder, out)
    if not writes_here:
        rmtree(folder)
        return None
    report = read_report(folder)
    with clock.stage("write"):
        written = [
            _write(plan, cache, report, tuned_path(folder, number), settings.replacing, out.note)
            for number, cache in enumerate(_caches(plan))
        ]
    for cache in written:
        for note in cache.notes:
            out.note(note)
    proofs: Sequence[Proof | None] = [None] * len(written)
    if settings.proving:
        with clock.stage("prove"):
            proofs = _prove(job, written, folder, settings, out)
    rmtree(folder)
    caches = map(WarmCache, _caches(plan), report.caches, written, proofs)
    return Warmed(plan, tuple(caches), clock.stages, report.peak_bytes, settings.devices.workers)


def _caches(plan: Plan) -> list[CachePlan]:
    return [plan.target, *([plan.draft] if plan.draft else [])]


def _check_writable(plan: Plan) -> None:
    """Before the search and not after it."""
    for cache in _caches(plan):
        with locked(plan.deployment.cache_dir / cache.folder):
            pass


def _search(plan: Plan, settings: Settings, folder: Path, out: Output) -> bool:
    """Whether this process is the one that writes on this node."""
    joined = joined_worker()
    if joined is not None:
        return joined.run(folder, plan.deployment.dist_init_addr)
    parallel, devices = plan.deployment.parallel, settings.devices
    fleet = Fleet(
        devices.workers,
        devices.kind,
        devices.gpus,
        parallel.nnodes,
        parallel.node_rank,
        plan.deployment.dist_init_addr,
        settings.timeout,
    )
    memory_ran_out = False
    out.note(f"{plan.deployment.name}: starting {devices}")
    with talk(out) as listener:

        def hear(worker: int, event: dict[str, Any]) -> None:
            nonlocal memory_ran_out
            memory_ran_out |= event["kind"] == ERROR and event.get("out_of_memory", False)
            listener(worker, event)

        try:
            launch("sgl_tune.warm.worker", folder, fleet, hear)
        except WorkFailed as failure:
            # Entries measured while memory ran out may be the wrong ones: none are kept.
            kept = None if memory_ran_out else _keep_decided(plan, folder, settings.replacing)
            raise _with_what_is_kept(failure, kept) from None
    return True


def _keep_decided(plan: Plan, folder: Path, replacing: bool) -> int:
    """Ops that were decided on all workers before the search ended: complete rank sets of fewer entries."""
    kept = 0
    for number, cache in enumerate(_caches(plan)):
        path = tuned_path(folder, number)
        if path.exists():
            file = read_cache_file(path)
            paths = [plan.deployment.cache_dir / name for name in cache.paths]
            kept += write_group(paths, file.entries, file.metadata or {}, replace_conflicting=replacing).added
    return kept


def _with_what_is_kept(failure: WorkFailed, kept: int | None) -> WorkFailed:
    if kept is None:
        said = "nothing was written"
    elif kept:
        said = f"{kept} decided entries are kept: the same command goes on from there"
    else:
        said = "the cache is as it was"
    return type(failure)(f"{failure.message}; {said}", failure.remedy)


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
        tool=__version__,
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


def _prove(
    job: Job, written: Sequence[Written], folder: Path, settings: Settings, out: Output
) -> Sequence[Proof]:
    with out.progress("proving in a fresh process") as progress:
        return prove(job, written, folder, settings.timeout, lambda: progress.advance(0))
