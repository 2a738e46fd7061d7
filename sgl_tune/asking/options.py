"""The options that say which server is asked, and how. Light: commands on files import it."""

from __future__ import annotations

from typing import Annotated

from sgl_tune.cli.parameters import Option

ServerOption = Annotated[
    str | None,
    Option(
        "--server",
        metavar="PATH",
        help="A Python, or a venv, that has SGLang: its own start is asked.",
        show_default=False,
    ),
]
CoreOption = Annotated[bool, Option("--core", help="Ask the runtime core, though a server is there to ask.")]
RemoteCodeOption = Annotated[
    bool, Option("--trust-remote-code", help="Let the model's own code run, in the server's cage.")
]
