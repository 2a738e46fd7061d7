"""`--deployment NAME`, and the names that a shell may complete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from runtime.server.errors import ConfigError
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.options import PROJECT_FILE
from sgl_tune.errors import SglTuneError


def _names() -> list[str]:
    from sgl_tune.deployment.project_file import read_project_file

    try:
        return [deployment.name for deployment in read_project_file(Path.cwd() / PROJECT_FILE)]
    except (OSError, SglTuneError, ConfigError):
        return []  # a shell that completes has no place for an error


DeploymentOption = Annotated[
    str | None,
    Option("--deployment", metavar="NAME", help="One of sgl-tune.toml's.", autocompletion=_names),
]
