"""The command that starts the server itself here, with dummy weights and for this machine alone."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from sgl_tune.asking.question import value_of
from sgl_tune.compile.goal import Goal
from sgl_tune.deployment.versions import Gpu

_LOOPBACK = "127.0.0.1"
_MEETING = ("--dist-init-addr", "--nccl-init-addr")


def why_not_started(goal: Goal, here: Sequence[Gpu]) -> str | None:
    """What keeps the server from being started on this machine; None where nothing does."""
    if goal.is_alone is not None:
        return goal.is_alone
    if len(here) < goal.ranks:
        return f"it has {goal.ranks} ranks, and {len(here)} GPUs are here"
    if here[0].arch != goal.arch:
        return f"it is for {goal.arch}, and the GPUs here are {here[0].arch}"
    return None


def server_words(goal: Goal) -> list[str]:
    """What is added stands last: of a flag that is given twice the last counts."""
    own = ["--load-format", "dummy", "--host", _LOOPBACK, "--port", str(_free_port())]
    arguments = goal.arguments
    if int(arguments.get("dp_size") or 1) > 1 and not arguments.get("enable_dp_attention"):
        own += ["--dp-size", "1"]  # replicas are alike
    if value_of(goal.words, _MEETING) is not None:
        own += [_MEETING[0], f"{_LOOPBACK}:{_free_port()}"]
    return [str(goal.python), "-m", "sglang.launch_server", *goal.words, *own]


def _free_port() -> int:
    """SGLang takes more behind it; the ports that a system gives away lie high."""
    with socket.socket() as asker:
        asker.bind((_LOOPBACK, 0))
        return int(asker.getsockname()[1])
