"""Which deployments a command is about: its flags, a pasted server command, or those of `sgl-tune.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runtime.server.gpus import GpuModel
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags, file_and_name
from sgl_tune.deployment.resolve import Place, resolve_deployment
from sgl_tune.errors import UsageError

if TYPE_CHECKING:
    from sgl_tune.deployment.project_file import ProjectDeployment


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
            raise UsageError(f"-f {name} and a server command after -- name two deployments", "give one")
        from sgl_tune.deployment.pasted_command import from_command

        return (from_command(command, flags, place, changes),)
    project, one = file_and_name(name, folder)
    if flags.model_path is None and os.path.lexists(project):
        from sgl_tune.deployment.project_file import chosen_in

        chosen = chosen_in(project, one)
        return tuple(_from_project(each, flags, place, changes) for each in chosen)
    if name is not None:
        where = "a model is given too" if flags.model_path else "there is no such file"
        raise UsageError(f"-f {name}: {where}", "give the file, or the model")
    return (resolve_deployment(flags.changed(**changes), place),)


def _from_project(
    project: ProjectDeployment, flags: ServerFlags, place: Place, changes: Mapping[str, Any]
) -> Deployment:
    merged, place = flags.over(project.flags), replace(place, name=project.name)
    if project.command is not None:
        from sgl_tune.deployment.pasted_command import from_command

        return from_command([project.command], merged, place, changes)
    return resolve_deployment(merged.changed(**changes), place)
