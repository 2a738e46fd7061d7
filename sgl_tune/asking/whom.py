"""Choose which server a command asks: the named one, the one found here, or none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sgl_tune.deployment.options import ServerFlags
from sgl_tune.deployment.project_file import Meant, meant_by, the_one
from sgl_tune.errors import CheckFailed, UsageError

if TYPE_CHECKING:
    from sgl_tune.servers.server import NoServer, Server

_NAME_IT = "--model-path, or a server command after --"


@dataclass(frozen=True, slots=True)
class ByServer:
    """The start that a command is about, and which server is asked about it. `only_core`: an option that
    only the runtime core supports. `deployment`: -f, if it names a project file."""

    flags: ServerFlags
    command: tuple[str, ...] = ()
    server: str | None = None
    core: bool = False
    trust_remote_code: bool = False
    only_core: str | None = None
    deployment: str | None = None

    @property
    def named(self) -> str | None:
        """Return the value of --server."""
        return "core" if self.core else self.server

    @property
    def names_a_start(self) -> bool:
        return bool(self.flags.model_path or self.command or self.deployment)

    def of(self, meant: Meant) -> ByServer:
        return replace(self, flags=meant.flags, command=meant.command, deployment=None)

    def one(self) -> ByServer:
        """Return the only server that is meant; refuse a project file with several deployments."""
        return self.of(the_one(self.flags, self.command, self.deployment))

    def meant(self) -> tuple[Meant, ...]:
        return meant_by(self.flags, self.command, self.deployment)

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
