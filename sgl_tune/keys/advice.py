"""What would make a server tune: every flag that is named has been resolved by the rules and planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.asked import default_of
from runtime.server.backends import BACKENDS
from runtime.server.errors import ConfigError
from runtime.server.flags.spelling import line_of, name_of, spelled
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.errors import UsageError
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.tunable import cannot_tune
from sgl_tune.keys.verdict import Verdict, gaps_of, planned_text, verdict_of

_CLOSING = ("disable_flashinfer_autotune", "enable_deterministic_inference", "rl_on_policy_target")


@dataclass(frozen=True, slots=True)
class Advice:
    """`given` is what to add to the command, by SGLang's names, `left_out` what to take from it."""

    given: Mapping[str, Any]
    left_out: tuple[str, ...]
    plan: Plan

    def flags(self) -> tuple[str, str]:
        """In the release's own spelling."""
        release = self.plan.deployment.server.release
        added = (spelled(release, name, value) for name, value in self.given.items())
        return " ".join(added), " ".join(name_of(release, name) for name in self.left_out)

    def to_json(self) -> dict[str, str]:
        added, dropped = self.flags()
        return {"with": added, "without": dropped}

    def __str__(self) -> str:
        added, dropped = self.flags()
        how = " and ".join(filter(None, (dropped and f"without {dropped}", added and f"with {added}")))
        return f"{how} it tunes {planned_text(self.plan)}"


def advised(plan: Plan) -> Verdict:
    """The verdict, and on its line what makes a server of it that a warm can serve, where something does."""
    verdict = verdict_of(plan)
    found = advice(plan) if verdict.tunes != "planned" or verdict.obstacle else None
    return replace(verdict, says=f"{verdict.says}; {found}", advice=found.to_json()) if found else verdict


def advice(plan: Plan) -> Advice | None:
    """The least change that ends in a whole plan, of those that there are."""
    for given, left_out in _attempts(plan.deployment):
        unset = {name: default_of(name) for name in left_out}
        other = _planned_with(plan.deployment, {**given, **unset})
        if other is not None:
            return Advice(given, left_out, other)
    return None


def _attempts(deployment: Deployment) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    asked, release = deployment.inputs.asked, deployment.server.release
    closing = tuple(name for name in _CLOSING if asked.is_set(name))
    if closing:
        yield {}, closing
    if asked.is_set("moe_runner_backend"):
        yield {}, (*closing, "moe_runner_backend")
    known = line_of(release).by_field["moe_runner_backend"].choices or ()
    for row in BACKENDS.values():
        tuned = row.tuned_since is not None and release.number >= row.tuned_since and row.name in known
        if not tuned or row.name == asked.moe_runner_backend:
            continue
        yield {"moe_runner_backend": row.name}, closing
        if row.spread_over_one_or_all and asked.ep_size not in (1, asked.tp_size):
            yield {"moe_runner_backend": row.name, "ep_size": asked.tp_size}, closing


def _planned_with(deployment: Deployment, changes: Mapping[str, Any]) -> Plan | None:
    """None of a server that SGLang refuses so, that tunes nothing then, or that cannot be warmed whole."""
    try:
        plan = make_plan(deployment.asking(**changes), gpus=())
        complete = plan.caches and not gaps_of(plan) and cannot_tune(plan) is None
    except (ConfigError, UsageError):
        return None
    return plan if complete else None
