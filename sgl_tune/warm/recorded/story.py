"""The job of a server whose own start was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgl_tune.cli.out import Output
from sgl_tune.recorded.plan import RecordedPlan
from sgl_tune.warm.recorded.job import CallCache, CallJob
from sgl_tune.warm.result import Warmed
from sgl_tune.warm.story import Settings as Settings
from sgl_tune.warm.story import Story
from sgl_tune.warm.workforce import Workforce

WORKER, PROVER = "sgl_tune.warm.recorded.worker", "sgl_tune.warm.recorded.prove"


def warm_records(plan: RecordedPlan, settings: Settings, out: Output, force: Workforce) -> Warmed:
    root, devices = plan.deployment.cache_dir, settings.devices
    caches = tuple(
        CallCache(cache.replayable, tuple(root / path for path in cache.paths)) for cache in plan.caches
    )
    job = CallJob(force.folder(), caches, devices.kind, devices.gpus, settings.replacing)

    def members(_: Any) -> Mapping[str, Any]:
        return {"sglang": plan.sglang}

    return Story(plan, job, settings, out, force, members).run()
