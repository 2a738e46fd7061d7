"""The launcher's side of a replay: the entries of a cache and how long each takes now, beside the default."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.server.gpus import CPU
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.keys.plan import Plan
from sgl_tune.processes.crew import Crew, Event, Member
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.devices import check_target, choose_devices
from sgl_tune.warm.events import DONE, ERROR, JOB
from sgl_tune.warm.job import Job, make_job

_WORKER = "sgl_tune.warm.replay_worker"


@dataclass(frozen=True, slots=True)
class Timed:
    """One entry. Milliseconds; None where it failed, for the reason in `failed`."""

    op: str
    bucket: int
    key: str
    tactic: Any
    best_ms: float | None
    default_ms: float | None
    failed: str | None


def replay(plan: Plan, key: str, path: Path, timeout: float, tick: Callable[[], None]) -> list[Timed]:
    """`path`: of the deployment's cache of this key a file that its server would load."""
    here = local_gpus()
    kind = "cpu" if plan.deployment.arch == CPU.arch else "cuda"
    if kind == "cuda" and not here:
        raise UsageError(
            f"--replay times the choices on {plan.deployment.arch}, and no GPU driver answers here",
            "run it on the machine that serves",
        )
    devices = choose_devices(kind, here[:1])
    check_target(plan.deployment, devices, here)
    with scratch() as private, Crew(_WORKER, 1, private) as crew:
        job = make_job(plan, private.folder, devices.kind, devices.gpus, timeout, replacing=False)
        asked = zip(plan.caches, job.caches, strict=True)
        caches = [replace(cache, files=(path,)) for planned, cache in asked if planned.key == key]
        (told,) = _told(crew, replace(job, caches=tuple(caches)), timeout, tick)
    return _timed(told, path)


def _told(crew: Crew, job: Job, timeout: float, tick: Callable[[], None]) -> Sequence[dict[str, Any]]:
    (worker,) = crew.members
    worker.send(JOB, job=job.to_json())
    for event in crew.told(tick, lambda: time.monotonic() - worker.moved_at >= timeout):
        if event["kind"] == DONE:
            caches: list[dict[str, Any]] = event["caches"]
            return caches
        _check(worker, event)
    if crew.ended:
        worker.show_output()
        raise WorkFailed(f"the replay {worker.fate}", worker.last_words)
    raise WorkFailed(f"the replay made no progress for {timeout:.0f} s and was stopped", worker.last_words)


def _check(worker: Member, event: Event) -> None:
    if event["kind"] == ERROR:
        worker.show_output()
        raise WorkFailed(f"the replay: {event['message']}", event.get("remedy"))


def _timed(answer: dict[str, Any], path: Path) -> list[Timed]:
    if not answer["loaded"]:
        raise UsageError(
            f"{path}: FlashInfer does not load it here", "`sgl-tune verify` without --replay says why"
        )
    names = ("op", "bucket", "tactic", "best_ms", "default_ms", "failed")
    return [
        Timed(key=entry["file_key"], **{name: entry[name] for name in names}) for entry in answer["entries"]
    ]
