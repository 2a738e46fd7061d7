"""Where a server's command begins among the words of one of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
PYTHON = re.compile(r"python[\d.]*")
SHELLS = ("bash", "sh", "zsh", "dash")
CONTAINERS = ("docker", "podman", "nvidia-docker", "nerdctl")
# These start the command that follows them, after flags of their own.
WRAPPERS = (
    "env", "exec", "sudo", "nohup", "time", "nice", "ionice", "stdbuf", "numactl", "taskset",
    "timeout", "setsid", "chrt", "command", "unbuffer", "srun", "apptainer", "singularity",
    "enroot", "uv", "uvx", "poetry", "pipenv", "conda",
)  # fmt: skip
_FIRST = {*SHELLS, *CONTAINERS, *WRAPPERS, "kubectl", "sglang"}


def split_positionals(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command's own arguments, and the server command after `--`, which click hands over in one list."""
    for index, word in enumerate(words):
        first = word.split(None, 1)[0] if word.strip() else word  # of a command that is one quoted string
        starts = first.startswith("-") or ASSIGNMENT.fullmatch(first) or is_program(first)
        if starts or "\n" in word:
            return list(words[:index]), list(words[index:])
    return list(words), []


def is_program(word: str) -> bool:
    """Whether a server command can begin with it."""
    base = base_name(word)
    return base in _FIRST or bool(PYTHON.fullmatch(base))


def base_name(word: str) -> str:
    return word.rsplit("/", 1)[-1]
