"""Plan the deployments of a command line for each kind of machine among the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from runtime.sglang.kept_files import kept_files
from sgl_tune.cache.asked import Verdict
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.deployment import Deployment, deploy
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.fleet.node import Node
from sgl_tune.fleet.tactics import Asked
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import verdict_of
from sgl_tune.verify.environment import UNTOLD, Target
from sgl_tune.verify.planned import expected_of, meant_on, plans_of
from sgl_tune.verify.scope import VerifyOptions

_MOST_KINDS = 256


@dataclass(frozen=True)
class Planned:
    """One deployment on one kind of machine. `asks`: the lookups of each of its nodes."""

    name: str
    plan: Plan
    asks: tuple[tuple[Asked, ...], ...]

    @cached_property
    def verdict(self) -> Verdict:
        return verdict_of(self.plan)

    @property
    def cache_dir(self) -> Path | None:
        """Return the named cache directory, or None: then each machine uses its own."""
        named = self.plan.deployment.cache_dir
        return None if named == default_cache_dir() else named


class NotServing(UsageError):
    """A machine cannot serve this. Other usage errors concern the command line."""


class Planner:
    """Plans each kind of machine once."""

    def __init__(self, asked: VerifyOptions) -> None:
        self._asked = asked
        self._kinds: dict[object, Sequence[Planned] | UsageError] = {}

    def planned(self, node: Node) -> Sequence[Planned]:
        """Return the plans for a node; raise UsageError if none can be made for such a machine."""
        gpu = replace(node.gpus[0], uuid="") if node.gpus else None
        kind = (node.sglang, node.arch, gpu, tuple(sorted((node.metadata or {}).items())))
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) == _MOST_KINDS:
                raise UsageError(f"more than {_MOST_KINDS} kinds of machines in one file", "give it in parts")
            found = self._kinds[kind] = self._plan(node.target)
        if isinstance(found, UsageError):
            raise found
        return found

    @property
    def refusal(self) -> UsageError | None:
        """Return the first error if no machine at all can start such a server."""
        errors = [found for found in self._kinds.values() if isinstance(found, UsageError)]
        return errors[0] if errors and len(errors) == len(self._kinds) else None

    @property
    def plans(self) -> Iterator[Plan]:
        for found in self._kinds.values():
            if not isinstance(found, UsageError):
                yield from (one.plan for one in found)

    def _plan(self, target: Target) -> Sequence[Planned] | UsageError:
        reads = target.typed(self._asked.by.flags.target)
        try:
            return [self._planned(plan, reads) for plan in self._plans_on(target)]
        except CheckFailed as error:
            return NotServing(error.message, error.remedy)
        except UsageError as error:
            return NotServing(error.message, error.remedy) if self._is_sound else error

    def _plans_on(self, target: Target) -> list[Plan]:
        return plans_of(meant_on(target, self._asked.by), target)

    @cached_property
    def _is_sound(self) -> bool:
        """Whether the command line can be planned on some machine."""
        try:
            self._plans_on(UNTOLD)
        except (UsageError, CheckFailed):
            return False
        return True

    def _planned(self, plan: Plan, target: Target) -> Planned:
        reads = target._replace(flashinfer=plan.deployment.inputs.flashinfer_version)
        plans = [make_plan(one, gpus=()) for one in _of_each_node(plan.deployment)]
        return Planned(plan.deployment.name, plan, tuple(_asked(one, reads) for one in plans))


def _of_each_node(deployment: Deployment) -> list[Deployment]:
    inputs = deployment.inputs
    if inputs.asked.nnodes == 1:
        return [deployment]
    return [
        deploy(replace(inputs, asked=replace(inputs.asked, node_rank=number)))
        for number in range(inputs.asked.nnodes)
    ]


def _asked(plan: Plan, target: Target) -> tuple[Asked, ...]:
    expected = expected_of(plan)
    entries = (entry for one in expected for op in one.ops for entry in op.entries)
    of = sum(entry.asked_by == "tuning" for entry in entries)
    return tuple(Asked(one, kept_files(plan.deployment.release.number), target, of) for one in expected)
