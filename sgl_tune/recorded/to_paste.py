"""Return a command about the same server, ready to paste."""

import shlex

from runtime.sglang.releases import NEWEST
from sgl_tune.asking.question import server_flags
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.shell_words import Pasted


def to_paste(verb: str, by: ByServer) -> str:
    named, words = by.flags.target, ["sgl-tune", verb]
    ours = {"--server": by.named or named.sglang_version, "--gpu": named.gpu or named.arch, "--cache-dir":
            named.cache_dir, "--model-config": named.model_config, "-f": by.deployment}  # fmt: skip
    words += [word for name, value in ours.items() if value for word in (name, value)]
    if by.command and isinstance(by.command[0], Pasted) and by.command[0].file:
        words += ["-f", by.command[0].file]
    elif by.command:
        words += ["--", *by.command]
    return shlex.join([*words, *server_flags(by.flags, NEWEST)])
