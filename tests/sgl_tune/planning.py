"""Ask the command line for a plan, in this process: its entry function with its arguments, its JSON back."""

import json
from typing import Any

from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.project_file import meant_by
from sgl_tune.deployment.resolve import Place, resolve_deployment
from sgl_tune.deployment.selection import deployment_of
from tests.sgl_tune.running import Ran, run_here

START = "python -m sglang.launch_server"
TARGET = ("--server", "0.5.23")
HOPPER = (*TARGET, "--gpu", "sm90")
BLACKWELL = (*TARGET, "--gpu", "sm100")


def deployment(environ: dict[str, str] | None = None, **flags: Any) -> Deployment:
    """By flags alone, on Hopper unless they say otherwise."""
    target = {"sglang_version": "0.5.23", "flashinfer_version": "0.7.2", "arch": "sm90"}
    return resolve_deployment(ServerFlags.of(**{**target, **flags}), Place(environ=environ or {}))


def deployments(*asked: Any, environ: dict[str, str] | None = None, **more: Any) -> tuple[Deployment, ...]:
    """Those that `meant_by` finds for the same arguments."""
    return tuple(deployment_of(one, environ) for one in meant_by(*asked, **more))


def warm(*arguments: object) -> Ran:
    return run_here("warm", "--dry-run", *arguments)


def plan(*arguments: object) -> dict[str, Any]:
    """`arguments` may end with a server command after `--`."""
    ran = warm("--format", "json", *arguments)
    data: dict[str, Any] = json.loads(ran.out)
    verdict = data["verdict"]
    assert ran.code == bool(verdict["obstacle"] or verdict["unplanned"]), ran.err
    return data


def names(data: dict[str, Any]) -> list[str]:
    """The files' names, all in the plan's one folder."""
    folders = {path.rsplit("/", 1)[0] for path in data["files"]}
    assert len(folders) == 1
    assert folders.pop().endswith(data["key"])
    return [path.rsplit("/", 1)[1] for path in data["files"]]
