"""Options that many commands share: the output format, the timeout, files and folders."""

import math
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from sgl_tune.cli.parameters import Option
from sgl_tune.errors import UsageError

_WEEK_SECONDS = 604800


class Format(str, Enum):
    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"


class DocumentFormat(str, Enum):
    """The formats of a command whose result people also paste into documents."""

    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"
    markdown = "markdown"


class FindingsFormat(str, Enum):
    """The formats of a command that also runs in the checks of a pull request."""

    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"
    github = "github"
    markdown = "markdown"
    junit = "junit"
    prometheus = "prometheus"


class EnvironmentFormat(str, Enum):
    """The formats of a command that prints environment variables for a server."""

    human = "human"
    json = "json"
    quiet = "quiet"
    agent = "agent"
    kubernetes = "kubernetes"


def sink(format: Enum, quiet: bool) -> Format:
    """Return the format that `Output` prints. The command itself makes the lines of any other format."""
    if quiet and format.value not in (Format.human.value, Format.quiet.value):
        raise UsageError(f"-q and --format {format.value} are two formats", "give one")
    own = format.value in Format.__members__
    return Format(format.value) if own and not quiet else Format.quiet


_HELP = "How to print the result. quiet (-q) prints what a script needs; agent prints plain tables with tabs."
FormatOption = Annotated[Format, Option("--format", help=_HELP, show_default=True)]
DocumentFormatOption = Annotated[DocumentFormat, Option("--format", help=_HELP, show_default=True)]
_OF_FINDINGS = "How to print it. github is for one machine; markdown, junit and prometheus are for --fleet."
FindingsFormatOption = Annotated[FindingsFormat, Option("--format", help=_OF_FINDINGS, show_default=True)]
EnvironmentFormatOption = Annotated[EnvironmentFormat, Option("--format", help=_HELP, show_default=True)]
QuietOption = Annotated[bool, Option("-q", "--quiet", hidden=True)]


def timeout_option(help: str, least: float = 1, most: float = _WEEK_SECONDS) -> Any:
    return Option("--timeout", metavar="SECONDS", min=least, max=most, help=help, callback=_number)


def _number(seconds: float) -> float:
    if math.isnan(seconds):  # click's range check accepts NaN
        raise UsageError("--timeout nan is no number of seconds", "such as 600")
    return seconds


CacheDirOption = Annotated[
    Path | None, Option("--cache-dir", help="Default: $SGLANG_CACHE_DIR or ~/.cache/sglang.", metavar="DIR")
]
LockOption = Annotated[
    Path | None, Option("--lock", metavar="FILE", help="Fail if a file is not the one in this sgl-tune.lock.")
]
