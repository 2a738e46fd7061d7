"""How the commands that may ask a server begin: the start that is meant, and who is asked about it."""

import os
from collections.abc import Sequence
from typing import Annotated

from sgl_tune.asking.whom import ByServer
from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.file_option import started_by
from sgl_tune.deployment.options import ServerFlags

ServerOption = Annotated[
    str | None,
    Option(
        "--server",
        metavar="PATH|X.Y.Z|core",
        help="The server to ask: a Python or a venv with SGLang, an added release, or the runtime core.",
    ),
]
RemoteCodeOption = Annotated[
    bool, Option("--trust-remote-code", help="Let the model's own code run in the server's sandbox.")
]


def asked_by(
    flags: ServerFlags,
    file: str | None,
    command: Sequence[str] | None,
    server: str | None,
    trust_remote_code: bool = False,
    only_core: str | None = None,
) -> ByServer:
    """Return the start that a command line names, and who is asked about it: --server may be a release."""
    words, deployment = started_by(file, command)
    is_core, is_release = server == "core", server is not None and server[:1].isdigit()
    if is_release and not os.path.lexists(str(server)):
        flags, server = flags.changed(sglang_version=server), None
    path = None if is_core else server
    return ByServer(flags, words, path, is_core, trust_remote_code, only_core, deployment)
