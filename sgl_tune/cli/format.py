"""How a result is printed: the flag that every command has."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from sgl_tune.cli.parameters import Option
from sgl_tune.errors import UsageError


class Format(str, Enum):
    human = "human"
    json = "json"
    quiet = "quiet"


class DocumentFormat(str, Enum):
    """Of a command whose answer people also paste somewhere."""

    human = "human"
    json = "json"
    quiet = "quiet"
    markdown = "markdown"


class FindingsFormat(str, Enum):
    """Of a command that a pull request's checks run."""

    human = "human"
    json = "json"
    quiet = "quiet"
    github = "github"
    markdown = "markdown"
    junit = "junit"
    prometheus = "prometheus"


class EnvironmentFormat(str, Enum):
    """Of a command that tells a server's variables."""

    human = "human"
    json = "json"
    quiet = "quiet"
    kubernetes = "kubernetes"


def sink(format: Enum, quiet: bool) -> Format:
    """What the one sink prints by itself; lines of any other format are made by the command."""
    if quiet and format.value not in (Format.human.value, Format.quiet.value):
        raise UsageError(f"-q and --format {format.value} are two formats", "give one")
    own = format.value in Format.__members__
    return Format(format.value) if own and not quiet else Format.quiet


FormatOption = Annotated[Format, Option("--format", help="How to print the result.", show_default=True)]
DocumentFormatOption = Annotated[
    DocumentFormat, Option("--format", help="How to print the result.", show_default=True)
]
FindingsFormatOption = Annotated[
    FindingsFormat, Option("--format", help="How to print the result.", show_default=True)
]
EnvironmentFormatOption = Annotated[
    EnvironmentFormat, Option("--format", help="How to print the result.", show_default=True)
]
QuietOption = Annotated[
    bool, Option("-q", "--quiet", help="Only what a script reads on, a line each: --format quiet.")
]
