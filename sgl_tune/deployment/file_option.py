"""`-f FILE`: a manifest, a Compose file, a script, or a project file and one of its deployments."""

from __future__ import annotations

import os
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


def _offered() -> list[str]:
    from sgl_tune.deployment.project_file import read_project_file

    try:
        names = [deployment.name for deployment in read_project_file(Path.cwd() / PROJECT_FILE)]
    except (OSError, SglTuneError, ConfigError):
        return []  # a shell that completes has no place for an error
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
    """The server's command, and the deployment of a project file, as -f names it."""
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
