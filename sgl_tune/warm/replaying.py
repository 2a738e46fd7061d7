"""The launcher's side of a replay: how long each entry of a cache, and the default, take now."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from runtime.server.gpus import CPU
from sgl_tune.cache.asked import Timed
from sgl_tune.deployment.versions import local_gpus
from sgl_tune.errors import UsageError
from sgl_tune.keys.plan import Plan
from sgl_tune.processes.scratch import scratch
from sgl_tune.warm.devices import check_target, choose_devices
from sgl_tune.warm.job import make_job
from sgl_tune.warm.launch import Fleet, Workers

_WORKER = "sgl_tune.warm.replay_worker"


def replay(plan: Plan, key: str, path: Path, timeout: float, tick: Callable[[], None]) -> list[Timed]:
    """Time the entries of one file. `path`: a file of the cache `key` that the deployment's server loads."""
    here = local_gpus()
    kind = "cpu" if plan.deployment.arch == CPU.arch else "cuda"
    if kind == "cuda" and not here:
        raise UsageError(
            f"--replay times the choices on {plan.deployment.arch}, and no GPU driver answers here",
            "run it on the machine that serves",
        )
    devices = choose_devices(kind, here[:1])
    check_target(plan.deployment, devices, here)
    with scratch() as private:
        job = make_job(plan, private.folder, devices.kind, devices.gpus)
        asked = zip(plan.caches, job.caches, strict=True)
        (cache,) = [replace(cache, files=(path,)) for planned, cache in asked if planned.key == key]
        fleet = Fleet(1, devices.kind, devices.gpus, timeout)
        with Workers(_WORKER, private, fleet) as workers:
            told = workers.run({"job": replace(job, caches=(cache,)).to_json()}, lambda *_: tick())
    if not told["loaded"]:
        said = f"{path}: FlashInfer does not load it here"
        raise UsageError(said, "`sgl-tune verify` without --replay says why")
    return [Timed(**entry) for entry in told["entries"]]
