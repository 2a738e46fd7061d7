"""How a result is printed: the flag that every command has."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer


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


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.", show_default=True)]
DocumentFormatOption = Annotated[
    DocumentFormat, typer.Option("--format", help="How to print the result.", show_default=True)
]
QuietOption = Annotated[
    bool, typer.Option("-q", "--quiet", help="Only what a script reads on, a line each: --format quiet.")
]
