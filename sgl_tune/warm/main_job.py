"""The job of a deployment that the core plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sgl_tune.cache.record import parse_key
from sgl_tune.cli.out import Output
from sgl_tune.deployment.deployment import deployment_to_json
from sgl_tune.keys.plan import CachePlan, Plan
from sgl_tune.warm.job import make_job
from sgl_tune.warm.result import Warmed
from sgl_tune.warm.story import Settings as Settings
from sgl_tune.warm.story import Story
from sgl_tune.warm.workforce import Workforce


def warm_deployment(plan: Plan, settings: Settings, out: Output, force: Workforce, is_last: bool) -> Warmed:
    devices = settings.devices
    job = make_job(plan, force.folder(), devices.kind, devices.gpus, settings.timeout, settings.replacing)

    def members(cache: CachePlan) -> Mapping[str, Any]:
        deployment = plan.deployment
        told = {"deployment": deployment_to_json(deployment), "sglang": deployment.sglang_version}
        return {"key_parts": cache.key_parts, **told}

    return Story(plan, job, settings, out, force, members, _for_every_rank, is_last).run()


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
