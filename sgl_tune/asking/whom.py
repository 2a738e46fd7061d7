"""Choose which server a command asks: the named one, the one found here, or none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from sgl_tune.cli.parameters import Option
from sgl_tune.deployment.options import ServerFlags
from sgl_tune.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from sgl_tune.servers.server import NoServer, Server

_NAME_IT = "--model-path, or a server command after --"
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
    bool, Option("--trust-remote-code", help="Let the model's own code run in the server's sandbox.")
]


@dataclass(frozen=True, slots=True)
class ByServer:
    """The part of a command that decides which server is asked. `only_core`: an option that only the
    runtime core supports."""

    flags: ServerFlags
    command: tuple[str, ...]
    server: str | None
    core: bool = False
    trust_remote_code: bool = False
    only_core: str | None = None

    def found(self) -> Server | None:
        """Return the server to ask, or None if the runtime core makes the plan."""
        only_core = self._says_core()
        if self.core or only_core or not (self.flags.model_path or self.command):
            if self.server is not None:
                why = f"{only_core} does not go with it" if only_core else "no model is named"
                raise UsageError(f"--server starts a server by its flags, and {why}", _NAME_IT)
            return None
        from sgl_tune.servers.server import Server

        found = self._sought(self.server)
        if isinstance(found, Server):
            return found
        if self.server is not None or found.has_sglang:
            raise UsageError(found.why, found.remedy)
        return None

    def _says_core(self) -> str | None:
        """The option that only the runtime core understands, such as a GPU named by its architecture."""
        arch = self.flags.target.arch
        return self.only_core or (f"--gpu {arch}" if arch else None)

    def _sought(self, option: str | None) -> Server | NoServer:
        from sgl_tune.deployment.launch import container_of
        from sgl_tune.servers.server import find_server

        container = container_of(self.command)
        image = container.release if container and option is None else None
        return find_server(option, self.flags.target.sglang_version or image)

    def needed(self, what: str) -> Server:
        """Return the server to ask, or raise UsageError because only a server can do `what`."""
        if not (self.flags.model_path or self.command):
            raise UsageError(f"{what}, and no model is named", _NAME_IT)
        if self.core or self._says_core():
            beside = "--server core" if self.core else self._says_core()
            raise UsageError(f"{what}, and {beside} asks no server", "leave one of them out")
        if found := self.found():
            return found
        missing: Any = self._sought(None)
        raise CheckFailed(f"not known: {missing.why}; {what}", missing.remedy)


def who_is_asked(flags: ServerFlags, server: str | None) -> tuple[ServerFlags, str | None, bool]:
    """Return the flags, with the release that --server names; the server's path; is the core asked?"""
    if server == "core":
        return flags, None, True
    if server is not None and server[:1].isdigit() and not os.path.lexists(server):
        return flags.changed(sglang_version=server), None, False
    return flags, server, False
