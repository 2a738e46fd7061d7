"""The command that starts a deployment's own server here, with dummy weights and for this machine alone."""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import fields

from runtime.server.asked import FROM_FILES, Asked
from runtime.server.flags import parse
from runtime.server.flags.spelling import line_of, name_of
from runtime.server.releases import release_named
from sgl_tune.compile.cut import Cut
from sgl_tune.deployment.deployment import Deployment
from sgl_tune.deployment.launch import Launch
from sgl_tune.deployment.server_command import arguments_of
from sgl_tune.deployment.versions import Gpu, installed_version
from sgl_tune.errors import UsageError

_LOOPBACK = "127.0.0.1"
_OTHER_SERVERS = ("grpc_mode", "smg_grpc_mode", "encoder_only", "use_ray")


def why_not_started(deployment: Deployment, here: Sequence[Gpu]) -> str | None:
    """What keeps its server from being started on this machine; None where nothing does."""
    installed, server = installed_version("sglang"), deployment.server
    if installed is None:
        return "SGLang is not installed here"
    if installed != deployment.sglang_version:
        return f"SGLang {installed} is installed here, and {deployment.sglang_version} is meant"
    if server.asked.nnodes > 1:
        return "its ranks are on several nodes"
    if server.disaggregation_mode not in ("", "null"):
        return f"it only does the {server.disaggregation_mode} of a pair of servers"
    ranks = server.tp_size * server.pp_size
    if len(here) < ranks:
        return f"it has {ranks} ranks, and {len(here)} GPUs are here"
    if here[0].arch != deployment.arch:
        return f"it is for {deployment.arch}, and the GPUs here are {here[0].arch}"
    return None


def server_words(deployment: Deployment, cut: Cut) -> tuple[list[str], dict[str, str]]:
    """What is added stands last: of a flag that is given twice the last counts."""
    launch = deployment.launch
    words = _of_launch(deployment, launch) if launch is not None else _of_asked(deployment)
    own = ["--load-format", "dummy", "--host", _LOOPBACK, "--port", str(_free_port())]
    if deployment.server.dp_size > 1 and deployment.server.attn_dp_size <= 1:
        own += ["--dp-size", "1"]  # replicas are alike
    if deployment.inputs.dist_init_addr is not None:
        own += ["--dist-init-addr", f"{_LOOPBACK}:{_free_port()}"]
    settings = {name: str(value) for name, value in launch.environment.items()} if launch is not None else {}
    program = [sys.executable, "-m", "sglang.launch_server"]
    return [*program, *words, *own, *cut.flags(deployment)], settings


def _of_launch(deployment: Deployment, launch: Launch) -> list[str]:
    if launch.container is not None:
        raise UsageError(
            "--everything starts the server itself, and this command starts a container",
            "run it in the image, with the server's own command after --",
        )
    for word in (*launch.arguments, *launch.environment.values()):
        if word.expands:
            raise UsageError(f"{word[:200]}: {word.expands[:200]} is not expanded", "put its value")
    line = line_of(release_named(deployment.sglang_version).release)
    words = arguments_of(launch, line)
    odd = next((name for name in _OTHER_SERVERS if parse(line, words).given.get(name)), None)
    if odd is not None:
        says = f"--everything cannot tell when a server with --{odd.replace('_', '-')} is ready"
        raise UsageError(says, "--compile-only starts none")
    return words


def _of_asked(deployment: Deployment) -> list[str]:
    release = release_named(deployment.sglang_version).release
    words: list[str] = []
    plain = Asked()
    for one in fields(Asked):
        value = getattr(deployment.server.asked, one.name)
        if value == getattr(plain, one.name) or one.name in FROM_FILES:
            continue
        words.append(name_of(release, one.name))
        if isinstance(value, (tuple, list)):
            words += map(str, value)
        elif value is not True:
            words.append(str(value))
    return words


def _free_port() -> int:
    """SGLang takes more behind it; the ports that a system gives away lie high."""
    with socket.socket() as asker:
        asker.bind((_LOOPBACK, 0))
        return int(asker.getsockname()[1])
