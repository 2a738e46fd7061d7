"""The deployments of a command line, as each kind of machine among the nodes would start them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from runtime.server.gpus import CPU, GpuModel, find_gpu
from runtime.sglang.kept_files import kept_files
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.deployment import Deployment, deploy
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.selection import select_deployments
from sgl_tune.deployment.versions import Gpu, local_model
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.fleet.node import Node
from sgl_tune.fleet.tactics import Asked
from sgl_tune.keys.plan import Plan, make_plan
from sgl_tune.keys.verdict import Verdict, verdict_of
from sgl_tune.verify.environment import Target
from sgl_tune.verify.planned import expected_of
from sgl_tune.verify.scope import VerifyOptions

_MOST_KINDS = 256


@dataclass(frozen=True, slots=True)
class Kind:
    """What decides a plan of a machine."""

    sglang: str | None
    flashinfer: str | None
    arch: str | None
    gpu: Gpu | None
    metadata: tuple[tuple[str, str], ...] | None


@dataclass(frozen=True)
class Planned:
    """One deployment on one kind of machine. `asks`: what each of its nodes looks up, if it has several."""

    name: str
    plan: Plan
    asks: tuple[tuple[Asked, ...], ...]
    compares: bool  # the environment of files with that of the machine

    @cached_property
    def verdict(self) -> Verdict:
        return verdict_of(self.plan)

    @property
    def cache_dir(self) -> Path | None:
        """None where nobody named one: then each machine has its own."""
        named = self.plan.deployment.cache_dir
        return None if named == default_cache_dir() else named


class NotServing(UsageError):
    """Of a machine, where any other is of the command line."""


class Planner:
    """Plans each kind of machine once."""

    def __init__(self, asked: VerifyOptions) -> None:
        self._asked = asked
        self._kinds: dict[Kind, Sequence[Planned] | UsageError] = {}

    def planned(self, node: Node) -> Sequence[Planned]:
        """UsageError where no such machine can be planned."""
        kind = _kind_of(node)
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) == _MOST_KINDS:
                raise UsageError(f"more than {_MOST_KINDS} kinds of machines in one file", "give it in parts")
            found = self._kinds[kind] = self._plan(kind)
        if isinstance(found, UsageError):
            raise found
        return found

    @property
    def refusal(self) -> UsageError | None:
        """Where no machine at all can start such a server: then it is not the machines."""
        errors = [found for found in self._kinds.values() if isinstance(found, UsageError)]
        return errors[0] if errors and len(errors) == len(self._kinds) else None

    @property
    def plans(self) -> Iterator[Plan]:
        for found in self._kinds.values():
            if not isinstance(found, UsageError):
                yield from (one.plan for one in found)

    def _plan(self, kind: Kind) -> Sequence[Planned] | UsageError:
        given = self._asked.flags
        flags = replace(
            given,
            sglang_version=given.sglang_version or kind.sglang,
            flashinfer_version=given.flashinfer_version or kind.flashinfer,
            arch=given.arch or (None if given.gpu else kind.arch),
        )
        gpu = local_model(kind.gpu) if kind.gpu and not (given.gpu or given.arch) else None
        try:
            return [self._planned(one, kind) for one in self._chosen(flags, gpu)]
        except UsageError as error:
            return self._of_another_image(kind, gpu) or error
        except CheckFailed as error:
            return NotServing(error.message, error.remedy)

    def _chosen(self, flags: ServerFlags, gpu: GpuModel | None) -> tuple[Deployment, ...]:
        return select_deployments(flags, self._asked.command, self._asked.deployment, gpu=gpu)

    def _of_another_image(self, kind: Kind, gpu: GpuModel | None) -> UsageError | None:
        """A command's image may name the release, and the env be of another."""
        if self._asked.flags.sglang_version or not kind.sglang:
            return None
        try:
            versions = {one.sglang_version for one in self._chosen(self._asked.flags, gpu)}
        except (UsageError, CheckFailed):
            return None
        if versions <= {kind.sglang}:
            return None
        return NotServing(
            f"its env is of SGLang {kind.sglang}, and the server's image of {', '.join(sorted(versions))}",
            "take it in the server's image",
        )

    def _planned(self, deployment: Deployment, kind: Kind) -> Planned:
        plan = make_plan(deployment, gpus=())
        if kind.arch is None and deployment.arch != CPU.arch and not self._asked.flags.gpu:
            raise NotServing(
                "no GPU answered where its env was taken, and nothing else says which one serves",
                "take it in the server's environment; or give --target, or --gpu",
            )
        metadata = dict(kind.metadata) if kind.metadata else None
        if metadata and not kind.arch and deployment.arch != CPU.arch:
            metadata = None  # without a GPU FlashInfer says nothing of the server's
        named = self._asked.flags.gpu
        target = Target(
            metadata, "", plan.deployment.flashinfer_version, gpu=find_gpu(named).name if named else None
        )
        plans = [make_plan(one, gpus=()) for one in _of_each_node(deployment)]
        return Planned(
            deployment.name, plan, tuple(_asked(one, target) for one in plans), metadata is not None
        )


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


def _kind_of(node: Node) -> Kind:
    metadata = tuple(sorted(node.metadata.items())) if node.metadata else None
    gpu = node.gpus[0] if node.gpus else None
    plain = replace(gpu, uuid="") if gpu else None
    return Kind(node.sglang, node.flashinfer, node.arch, plain, metadata)
