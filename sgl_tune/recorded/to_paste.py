"""Return a command about the same server, ready to paste."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from runtime.sglang.releases import NEWEST
from sgl_tune.asking.question import server_flags
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.shell_words import Pasted


def to_paste(
    verb: str, flags: ServerFlags, command: Sequence[str], deployment: str | None, server: str | None
) -> str:
    named, words = flags.target, ["sgl-tune", verb]
    ours = {"--server": server or named.sglang_version, "--gpu": named.gpu or named.arch, "--cache-dir":
            named.cache_dir, "--model-config": named.model_config, "-f": deployment}  # fmt: skip
    words += [word for name, value in ours.items() if value for word in (name, value)]
    if command and isinstance(command[0], Pasted) and command[0].file:
        words += ["-f", command[0].file]
    elif command:
        words += ["--", *command]
    return shlex.join([*words, *server_flags(flags, NEWEST)])
