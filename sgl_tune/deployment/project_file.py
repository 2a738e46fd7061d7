"""`sgl-tune.toml`: a project's named deployments, each given by flags or by its server's command."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runtime.server.nearest import meant
from sgl_tune.deployment.flag_names import flag_names, flag_types, whole_number
from sgl_tune.deployment.options import PROJECT_FILE, ServerFlags, file_and_name
from sgl_tune.errors import UsageError
from sgl_tune.reading import read_text
from sgl_tune.units import shown

_COMMAND = "command"
_LARGEST = 1 << 20


class Meant(NamedTuple):
    """One server before it is resolved. `flags`: all flags, or those beside its `command`."""

    name: str
    flags: ServerFlags
    command: tuple[str, ...]


def read_project_file(path: Path) -> tuple[Meant, ...]:
    from runtime.toml import tomllib  # most commands find no project file

    text = read_text(path, None, _LARGEST, "is not TOML")
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    unknown = set(content) - {"defaults", "deployments"}
    if unknown:
        raise UsageError(f"{path}: [{min(unknown)}] is unknown", "it has [defaults] and [deployments.NAME]")
    defaults = _flags(path, "defaults", _table(path, "defaults", content.get("defaults", {})))
    tables = _table(path, "deployments", content.get("deployments", {}))
    if not tables:
        raise UsageError(f"{path} names no deployment", "add a table [deployments.NAME]")
    return tuple(_deployment(path, name, table, defaults) for name, table in tables.items())


def meant_by(
    flags: ServerFlags, command: Sequence[str] = (), name: str | None = None, folder: Path | None = None
) -> tuple[Meant, ...]:
    """Return the server of the flags, or all of the project file if no model is named. `name` picks one."""
    if command and name is not None:
        raise UsageError(f"-f {name} and a server command after -- name two deployments", "give one")
    project, one = file_and_name(name, folder)
    if not command and flags.model_path is None and os.path.lexists(project):
        return tuple(each._replace(flags=flags.over(each.flags)) for each in _chosen_in(project, one))
    if name is not None:
        where = "a model is given too" if flags.model_path else "there is no such file"
        raise UsageError(f"-f {name}: {where}", "give the file, or the model")
    return (Meant("", flags, tuple(command)),)


def the_one(flags: ServerFlags, command: Sequence[str], name: str | None) -> Meant:
    one, *others = meant_by(flags, command, name)
    if others:
        names = [one.name, *(other.name for other in others)]
        said = f"{name or PROJECT_FILE} has several deployments: {', '.join(names)}"
        raise UsageError(said, f"pick one: -f {name or PROJECT_FILE}:{names[0]}")
    return one


def _chosen_in(project: Path, name: str | None) -> tuple[Meant, ...]:
    """Return all deployments of the file, or the one called `name`."""
    deployments = read_project_file(project)
    chosen = tuple(deployment for deployment in deployments if name in (None, deployment.name))
    if not chosen:
        names = ", ".join(deployment.name for deployment in deployments)
        raise UsageError(f"{project} has no deployment {name!r}", f"it has {names}")
    return chosen


def _deployment(path: Path, name: str, table: Any, defaults: Mapping[str, Any]) -> Meant:
    where = f"deployments.{name}"
    members = dict(_table(path, where, table))
    command = members.pop(_COMMAND, None)
    if command is not None and not isinstance(command, str):
        raise UsageError(f"{path}: {where}.command is {shown(command)}: one string is needed")
    _refuse_nul(path, f"{where}.command", command)
    given = {**defaults, **_flags(path, where, members)}
    try:
        return Meant(name, ServerFlags.of(**given), () if command is None else (command,))
    except UsageError as error:  # a number that is too large
        raise UsageError(f"{path}: {where}: {error.message}", error.remedy) from None


def _table(path: Path, where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{path}: {where} is {shown(value)}: a table is needed")
    return value


def _flags(path: Path, where: str, members: Mapping[str, Any]) -> dict[str, Any]:
    flags = {}
    for name, value in members.items():
        field = flag_names().get(f"--{name.replace('_', '-')}")
        if field is None:
            near = meant(name.replace("_", "-"), (flag.lstrip("-") for flag in flag_names()))
            raise UsageError(
                f"{path}: {where}.{name} is no flag",
                near or "write SGLang's flags without their dashes: tp = 8",
            )
        is_sizes = field == "cuda_graph_bs" and isinstance(value, list)
        given = list(map(str, value)) if is_sizes else value
        flags[field] = _checked(path, f"{where}.{name}", flag_types()[field], given)
        if is_sizes:
            flags[field] = [whole_number(f"{path}: {where}.{name}", str(size)) for size in flags[field]]
    return flags


def _checked(path: Path, where: str, kind: type, value: Any) -> Any:
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        return float(value)
    strings = isinstance(value, list) and all(isinstance(item, str) for item in value)
    if type(value) is not kind or (kind is list and not strings):
        raise UsageError(f"{path}: {where} is {shown(value)}: {_KIND_NAMES[kind]} is needed")
    _refuse_nul(path, where, value)
    return value


def _refuse_nul(path: Path, where: str, value: Any) -> None:
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(text, str) and "\0" in text for text in texts):
        raise UsageError(f"{path}: {where} holds a NUL, which no command line could give")


_KIND_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string",
               list: "a list of strings"}  # fmt: skip
