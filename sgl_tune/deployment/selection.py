"""Which deployments a command is about: its flags, a pasted server command, or those of `sgl-tune.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from runtime.server.gpus import GpuModel
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import PROJECT_FILE, ServerFlags, file_and_name
from sgl_tune.deployment.resolve import Place, resolve_deployment
from sgl_tune.errors import UsageError


class Meant(NamedTuple):
    """One server, before it is resolved: its flags, merged with those of sgl-tune.toml, and its command."""

    name: str
    flags: ServerFlags
    command: tuple[str, ...]


def meant_by(
    flags: ServerFlags, command: Sequence[str] = (), name: str | None = None, folder: Path | None = None
) -> tuple[Meant, ...]:
    """One server, or all of the project file's when no model is named. `name` picks one of them."""
    if command and name is not None:
        raise UsageError(f"-f {name} and a server command after -- name two deployments", "give one")
    project, one = file_and_name(name, folder)
    if not command and flags.model_path is None and os.path.lexists(project):
        from sgl_tune.deployment.project_file import chosen_in

        chosen = chosen_in(project, one)
        return tuple(
            Meant(each.name, flags.over(each.flags), (each.command,) if each.command is not None else ())
            for each in chosen
        )
    if name is not None:
        where = "a model is given too" if flags.model_path else "there is no such file"
        raise UsageError(f"-f {name}: {where}", "give the file, or the model")
    return (Meant("", flags, tuple(command)),)


def the_one(flags: ServerFlags, command: Sequence[str], name: str | None) -> Meant:
    one, *others = meant_by(flags, command, name)
    if others:
        raise several([one.name, *(other.name for other in others)])
    return one


def several(names: Sequence[str]) -> UsageError:
    said = f"{PROJECT_FILE} has several deployments: {', '.join(names)}"
    return UsageError(said, f"pick one: -f {PROJECT_FILE}:{names[0]}")


def deployment_of(
    one: Meant,
    environ: Mapping[str, str] | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    gpu: GpuModel | None = None,
) -> Deployment:
    """`changes` are flags set last: the same server started another way. `gpu`: already chosen."""
    place = Place(name=one.name, environ=os.environ if environ is None else environ, gpu=gpu)
    if one.command:
        from sgl_tune.deployment.pasted_command import from_command

        return from_command(one.command, one.flags, place, changes)
    return resolve_deployment(one.flags.changed(**changes), place)


def select_deployments(
    flags: ServerFlags,
    command: Sequence[str] = (),
    name: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    changes: Mapping[str, Any] = MappingProxyType({}),
    gpu: GpuModel | None = None,
) -> tuple[Deployment, ...]:
    return tuple(deployment_of(one, environ, changes, gpu) for one in meant_by(flags, command, name, folder))
