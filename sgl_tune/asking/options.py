"""The options that say which server is asked, and how. Light: commands on files import it."""

from __future__ import annotations

from typing import Annotated

from sgl_tune.cli.parameters import Option

ServerOption = Annotated[
    str | None,
    Option(
        "--server",
        metavar="PATH|X.Y.Z|core",
        help="The server to ask: a Python or a venv with SGLang, an added release, or the runtime core.",
        show_default=False,
    ),
]
RemoteCodeOption = Annotated[
    bool, Option("--trust-remote-code", help="Let the model's own code run, in the server's cage.")
]
