"""Which deployments a command is about: its flags, a pasted server command, or those of `sgl-tune.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runtime.server.gpus import GpuModel
from sgl_tune.deployment.container import Container
from sgl_tune.deployment.container_place import placed_in
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.hub_cache import HUB_ENVIRONMENT
from sgl_tune.deployment.launch import launch_of
from sgl_tune.deployment.options import TARGET_FIELDS, ServerFlags, flag_names
from sgl_tune.deployment.project_file import PROJECT_FILE, ProjectDeployment, chosen_in
from sgl_tune.deployment.resolve import Place, resolve_deployment
from sgl_tune.deployment.server_command import read_launch
from sgl_tune.errors import UsageError

_DECISIVE = ("SGLANG_", "SGL_", "FLASHINFER_")  # may change what is tuned, and how much memory there is


def select_deployments(
    flags: ServerFlags,
    command: Sequence[str] = (),
    name: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    gpu: GpuModel | None = None,
) -> tuple[Deployment, ...]:
    """One, or all of the project file's when no model is named. `name` picks one of them.

    `changes` are flags set last, whoever gave the others: the same deployment started another way. `gpu` is
    given where the caller has chosen one already.
    """
    place = Place(environ=os.environ if environ is None else environ, gpu=gpu)
    if command:
        if name is not None:
            raise UsageError("--deployment and a server command after -- name two deployments", "give one")
        return (_from_command(command, flags, place, changes),)
    project = (folder or Path.cwd()) / PROJECT_FILE
    if flags.model_path is None and os.path.lexists(project):
        chosen = chosen_in(project, name)
        return tuple(_from_project(one, flags, place, changes) for one in chosen)
    if name is not None:
        where = "a model is given too" if flags.model_path else f"there is no {project}"
        raise UsageError(f"--deployment {name}: {where}", f"--deployment picks one of {PROJECT_FILE}")
    return (resolve_deployment(replace(flags, **changes), place),)


def _from_project(
    project: ProjectDeployment, flags: ServerFlags, place: Place, changes: Mapping[str, Any]
) -> Deployment:
    merged, place = replace(project.flags, **flags.given()), replace(place, name=project.name)
    if project.command is not None:
        return _from_command([project.command], merged, place, changes)
    return resolve_deployment(replace(merged, **changes), place)


def _from_command(
    command: Sequence[str], beside: ServerFlags, place: Place, changes: Mapping[str, Any]
) -> Deployment:
    """Beside a server command only the target may be given: what the server does, the command says."""
    twice = set(beside.given()) - TARGET_FIELDS
    if twice:
        flag = min((flag for flag, field in flag_names().items() if field == min(twice)), key=len)
        of = f"{place.name}'s in {PROJECT_FILE}" if place.name else "after --"
        raise UsageError(f"{flag} is given beside a server command, {of}", "write it into the command")
    launch = launch_of(list(command))
    line = read_launch(launch)
    notes = [*_of_image(beside, launch.container), *line.notes]
    if line.variables:
        notes.append(f"not looked at, whatever they change: {' '.join(line.variables)}")
    flags = replace(beside, **{**line.flags.given(), **changes})
    if flags.model_path is None:
        raise UsageError("the server command names no model", "add --model-path, as the server's has it")
    outside = place.environ or {}
    if launch.container is not None:  # its cache of models is most often this machine's, mounted
        outside = {name: outside[name] for name in HUB_ENVIRONMENT if name in outside}
    place = replace(
        place,
        environ={**outside, **line.environment},
        revision=line.revision,
        not_followed=(*line.unfollowed, *(told for told in line.variables if told.startswith(_DECISIVE))),
        notes=tuple(notes),
    )
    if launch.container is not None:
        flags, place = placed_in(launch.container, flags, place)
    return replace(resolve_deployment(flags, place), launch=launch)


def _of_image(flags: ServerFlags, container: Container | None) -> list[str]:
    """What its tag says of the release; `resolve` says what becomes of another than the core's."""
    if container is None or not container.image:
        return []
    if container.release is None:
        return [] if flags.sglang_version else [f"the image {container.image} names no release of SGLang"]
    if flags.sglang_version not in (None, container.release):
        raise UsageError(
            f"--sglang-version {flags.sglang_version}, and the image {container.image} holds SGLang "
            f"{container.release}",
            "leave --sglang-version out, or change the image's tag",
        )
    return [f"SGLang {container.release}: the image {container.image} says so"]
