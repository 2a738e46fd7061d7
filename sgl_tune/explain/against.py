"""One deployment beside the same under another release, on another GPU: what changes, what survives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtime.server.errors import ConfigError
from runtime.server.gpus import find_gpu
from runtime.server.releases import release_named
from sgl_tune.deployment.deployment import Deployment, Inputs, deploy
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.errors import UsageError
from sgl_tune.explain.differences import Difference, differences
from sgl_tune.explain.flag_changes import flag_changes
from sgl_tune.explain.survival import Survival, survivals
from sgl_tune.keys.plan import Plan, make_plan


@dataclass(frozen=True, slots=True)
class Other:
    """Which other start is meant; None is the same."""

    release: str | None = None
    gpu: str | None = None

    def __post_init__(self) -> None:
        """What nobody knows is refused here, and is no server that another release refuses."""
        if self.release is not None:
            release_named(self.release)
        if self.gpu is not None:
            find_gpu(self.gpu)

    def flags(self, flags: ServerFlags) -> ServerFlags:
        if self.release is not None:
            flags = replace(flags, sglang_version=self.release, flashinfer_version=None)
        return flags if self.gpu is None else replace(flags, gpu=self.gpu, arch=None)

    def inputs(self, inputs: Inputs) -> Inputs:
        """The same arguments, however the other release would spell them."""
        if self.release is not None:
            row = release_named(self.release).release
            inputs = replace(inputs, sglang_version=row.version, flashinfer_version=row.flashinfer)
        if self.gpu is not None:
            inputs = replace(inputs, gpu=find_gpu(self.gpu))
        return inputs


@dataclass(frozen=True, slots=True)
class Comparison:
    """`after` is None where the other release refuses this server: `refused` says why. `command`: why it does
    not take the command as it is written; then the arguments are compared all the same."""

    before: Plan
    after: Plan | None
    sglang: str
    refused: str | None = None
    command: str | None = None
    flags: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    caches: tuple[Survival, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plan = self.after.to_json() if self.after else {}
        deployment = self.after.deployment if self.after else None
        return {
            "sglang": self.sglang,
            "flashinfer": deployment.flashinfer_version if deployment else None,
            "gpu": deployment.inputs.gpu.name if deployment else None,
            "arch": deployment.arch if deployment else None,
            "refused": self.refused,
            "command_refused": self.command,
            "flags": list(self.flags),
            "differences": [one.to_json() for one in self.differences],
            "caches": [one.to_json() for one in self.caches],
            **{name: plan.get(name) for name in ("server", "key", "key_parts", "files", "groups", "ops")},
        }


def compare(
    plans: Sequence[Plan], other: Other, flags: ServerFlags, command: Sequence[str], name: str | None
) -> list[Comparison]:
    """Each alone: a project's one deployment may be refused where the others are not."""
    names = [name] if len(plans) == 1 else [plan.deployment.name for plan in plans]
    return [_compare(plan, other, flags, command, one) for plan, one in zip(plans, names, strict=True)]


def _compare(
    plan: Plan, other: Other, flags: ServerFlags, command: Sequence[str], name: str | None
) -> Comparison:
    """A command is read again, by the other release's grammar."""
    try:
        asks_image = other.release is None
        (chosen,) = select_deployments(other.flags(flags), command, name, asks_image=asks_image)
    except UsageError as refusal:
        return _comparison(plan, None, other, refusal)
    return _comparison(plan, chosen, other, None)


def _comparison(
    before: Plan, chosen: Deployment | None, other: Other, refusal: UsageError | None
) -> Comparison:
    inputs = before.deployment.inputs
    release = release_named(other.release or inputs.sglang_version).release
    flags = tuple(flag_changes(inputs.asked, before.deployment.server.release, release))
    try:
        deployment = deploy(other.inputs(chosen.inputs if chosen else inputs))
    except ConfigError as error:
        return Comparison(before, None, release.version, refused=error.message, flags=flags)
    after = make_plan(deployment)
    return Comparison(
        before,
        after,
        release.version,
        command=refusal.message if refusal else None,
        flags=flags,
        differences=differences(before, after),
        caches=survivals(before, after),
    )
