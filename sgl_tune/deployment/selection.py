"""Which deployments a command is about: its flags, a pasted server command, or those of `sgl-tune.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runtime.server.asked import changed
from runtime.server.gpus import GpuModel
from sgl_tune.deployment.container import Container
from sgl_tune.deployment.container_place import placed_in
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.hub_cache import HUB_ENVIRONMENT
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags, flag_names
from sgl_tune.deployment.project_file import PROJECT_FILE, ProjectDeployment, read_project_file
from sgl_tune.deployment.resolve import Target, deployed, given_by, resolve_deployment
from sgl_tune.deployment.server_command import read_launch
from sgl_tune.errors import UsageError


def select_deployments(
    flags: ServerFlags,
    command: Sequence[str] = (),
    name: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    gpu: GpuModel | None = None,
    asks_image: bool = True,
) -> tuple[Deployment, ...]:
    """One, or all of the project file's when no model is named. `name` picks one of them.

    `changes` are flags set last, whoever gave the others: the same deployment started another way. `gpu` is
    given where the caller has chosen one already. `asks_image`: a container's tag names the release, too.
    """
    environ = os.environ if environ is None else environ
    if command:
        if name is not None:
            raise UsageError("--deployment and a server command after -- name two deployments", "give one")
        return (_from_command(command, flags, "", environ, changes, gpu, asks_image),)
    project = (folder or Path.cwd()) / PROJECT_FILE
    if flags.model_path is None and os.path.lexists(project):
        chosen = _chosen(project, read_project_file(project), name)
        return tuple(_from_project(one, flags, environ, changes, gpu, asks_image) for one in chosen)
    if name is not None:
        where = "a model is given too" if flags.model_path else f"there is no {project}"
        raise UsageError(f"--deployment {name}: {where}", f"--deployment picks one of {PROJECT_FILE}")
    return (resolve_deployment(replace(flags, **changes), environ=environ, gpu=gpu),)


def chosen_of_project(
    flags: ServerFlags, name: str | None, folder: Path | None = None
) -> tuple[ServerFlags, tuple[str, ...]] | None:
    """The flags and the command of the one deployment that is meant; None where no project file is."""
    project = (folder or Path.cwd()) / PROJECT_FILE
    if flags.model_path is not None or not os.path.lexists(project):
        return None
    chosen = _chosen(project, read_project_file(project), name)
    if len(chosen) > 1:
        raise several(chosen)
    one = chosen[0]
    return replace(one.flags, **flags.given()), () if one.command is None else (one.command,)


def several(deployments: Sequence[Deployment] | Sequence[ProjectDeployment]) -> UsageError:
    names = ", ".join(deployment.name for deployment in deployments)
    return UsageError(f"{PROJECT_FILE} has several deployments: {names}", "pick one with --deployment")


def _chosen(
    project: Path, deployments: tuple[ProjectDeployment, ...], name: str | None
) -> tuple[ProjectDeployment, ...]:
    if name is None:
        return deployments
    chosen = tuple(deployment for deployment in deployments if deployment.name == name)
    if not chosen:
        names = ", ".join(deployment.name for deployment in deployments)
        raise UsageError(f"{project} has no deployment {name!r}", f"it has {names}")
    return chosen


def _from_project(
    project: ProjectDeployment,
    flags: ServerFlags,
    environ: Mapping[str, str],
    changes: Mapping[str, Any],
    gpu: GpuModel | None,
    asks_image: bool,
) -> Deployment:
    merged = replace(project.flags, **flags.given())
    if project.command is not None:
        return _from_command([project.command], merged, project.name, environ, changes, gpu, asks_image)
    return resolve_deployment(replace(merged, **changes), project.name, environ, gpu=gpu)


def _from_command(
    command: Sequence[str],
    beside: ServerFlags,
    name: str,
    environ: Mapping[str, str],
    changes: Mapping[str, Any],
    gpu: GpuModel | None,
    asks_image: bool,
) -> Deployment:
    """Beside a server command only the target may be given: what the server does, the command says."""
    twice = set(beside.given()) - TARGET_FIELDS
    if twice:
        flag = min((flag for flag, field in flag_names().items() if field == min(twice)), key=len)
        of = f"{name}'s in {PROJECT_FILE}" if name else "after --"
        raise UsageError(f"{flag} is given beside a server command, {of}", "write it into the command")
    launch = launch_of(list(command))
    target, notes = _of_image(Target.of(beside, gpu), launch.container if asks_image else None)
    line = read_launch(launch, target.release.release)
    asked = changed(line.asked, given_by(ServerFlags(**changes)))
    notes += line.notes
    if line.unread.without_effect:
        notes.append(f"without effect on the cache: {' '.join(line.unread.without_effect)}")
    if line.unread.variables:
        notes.append(f"not looked at, whatever they change: {' '.join(line.unread.variables)}")
    target = replace(
        target,
        dist_init_addr=line.dist_init_addr,
        not_modelled=line.unread.not_modelled,
        revision=line.revision,
    )
    if line.container is None:
        found = deployed(asked, target, name, {**environ, **line.environment}, notes)
        return replace(found, launch=launch)
    placed = placed_in(line.container, target, asked.model_path, {**_hub(environ), **line.environment})
    notes += placed.notes
    found = deployed(asked, placed.target, name, placed.environ, notes, placed.warnings)
    return replace(found, launch=launch)


def _hub(environ: Mapping[str, str]) -> dict[str, str]:
    """A container's own cache of models is most often this machine's, mounted."""
    return {name: environ[name] for name in HUB_ENVIRONMENT if name in environ}


def _of_image(target: Target, container: Container | None) -> tuple[Target, list[str]]:
    """Its tag names the release, where it names one."""
    if container is None:
        return target, []
    tag = container.release
    if tag is None:
        is_unnamed = container.image and target.sglang is None
        return target, [f"the image {container.image} names no release of SGLang"] if is_unnamed else []
    if target.sglang is not None and target.sglang != tag:
        raise UsageError(
            f"--sglang-version {target.sglang}, and the image {container.image} holds SGLang {tag}",
            "leave --sglang-version out, or change the image's tag",
        )
    return replace(target, sglang=tag), [f"SGLang {tag}: the image {container.image} says so"]
