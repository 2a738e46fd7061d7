"""The option `-f FILE`: a manifest, a Compose file, a script, or a project file's deployments."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from runtime.server.errors import ConfigError
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.options import PROJECT_FILE, file_and_name
from sgl_tune.deployment.shell_words import Pasted
from sgl_tune.errors import SglTuneError, UsageError
from sgl_tune.reading import read_text

_FILES = f"name a manifest, a Compose file, a script, {PROJECT_FILE}, or - for standard input"
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


def _offered() -> list[str]:
    from sgl_tune.deployment.project_file import read_project_file

    try:
        names = [deployment.name for deployment in read_project_file(Path.cwd() / PROJECT_FILE)]
    except (OSError, SglTuneError, ConfigError):
        return []  # shell completion cannot show an error
    return [f"{PROJECT_FILE}:{name}" for name in names]


FileOption = Annotated[
    str | None,
    Option(
        "-f",
        "--file",
        metavar="FILE[:NAME]",
        help=f"A manifest, a Compose file or a script that starts the server, or {PROJECT_FILE}.",
        autocompletion=_offered,
    ),
]


def started_by(file: str | None, command: Sequence[str] | None) -> tuple[tuple[str, ...], str | None]:
    """Return the server's command, or the project file's deployment, that -f names."""
    words = tuple(command or ())
    if file is None:
        return words, None
    if words:
        raise UsageError(f"-f {file} and a command after -- are two servers", "give one")
    if file_and_name(file)[0].suffix == ".toml":
        return (), file
    before, _, after = file.rpartition(":")
    path, name = (file, None) if os.path.lexists(file) or not before else (before, after)
    text = read_text(Path("/dev/fd/0" if path == "-" else path), _FILES)
    pasted = Pasted(text if "\n" in text else f"{text}\n")
    pasted.where, pasted.folder, pasted.name, pasted.file = f"in {path}", str(Path(path).parent), name, file
    return (pasted,), None


def split_positionals(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split click's one list of words into a command's own arguments and the server command after `--`."""
    for index, word in enumerate(words):
        first = word.split(None, 1)[0] if word.strip() else word  # the first word of a quoted command
        starts = first.startswith("-") or ASSIGNMENT.fullmatch(first) or is_program(first)
        if starts or "\n" in word:
            return list(words[:index]), list(words[index:])
    return list(words), []


def is_program(word: str) -> bool:
    """Whether a server command can begin with this word."""
    base = base_name(word)
    return base in _FIRST or bool(PYTHON.fullmatch(base))


def base_name(word: str) -> str:
    return word.rsplit("/", 1)[-1]
