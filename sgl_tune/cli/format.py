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
    agent = "agent"


class DocumentFormat(str, Enum):
    """Of a command whose answer people also paste somewhere."""

    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"
    markdown = "markdown"


class FindingsFormat(str, Enum):
    """Of a command that a pull request's checks run."""

    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"
    github = "github"
    markdown = "markdown"
    junit = "junit"
    prometheus = "prometheus"


class EnvironmentFormat(str, Enum):
    """Of a command that tells a server's variables."""

    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"
    kubernetes = "kubernetes"


def sink(format: Enum, quiet: bool) -> Format:
    """What the one sink prints by itself; lines of any other format are made by the command."""
    if quiet and format.value not in (Format.human.value, Format.quiet.value):
        raise UsageError(f"-q and --format {format.value} are two formats", "give one")
    own = format.value in Format.__members__
    return Format(format.value) if own and not quiet else Format.quiet


_HELP = "How to print the result; -q is quiet, what a script reads on; agent is plain tables with tabs."
FormatOption = Annotated[Format, Option("--format", help=_HELP, show_default=True)]
DocumentFormatOption = Annotated[DocumentFormat, Option("--format", help=_HELP, show_default=True)]
FindingsFormatOption = Annotated[FindingsFormat, Option("--format", help=_HELP, show_default=True)]
EnvironmentFormatOption = Annotated[EnvironmentFormat, Option("--format", help=_HELP, show_default=True)]
QuietOption = Annotated[bool, Option("-q", "--quiet", hidden=True)]
