"""Who answers: the user's own server, else the runtime core, else nobody."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from runtime.sglang.releases import Release
from sgl_tune.asking.question import release_of_image
from sgl_tune.cli.out import Output
from sgl_tune.deployment.project_file import chosen_of_project
from sgl_tune.errors import UsageError
from sgl_tune.memory.ghost.asked import ServerOptions, asked_of
from sgl_tune.memory.ghost.fit_start import fitted_on_server
from sgl_tune.memory.options import FitOptions, MemoryOptions, check_alone
from sgl_tune.memory.report import Answer
from sgl_tune.memory.trial import Fit
from sgl_tune.servers.server import NoServer, Server, find_server


@dataclass(frozen=True, slots=True)
class Who:
    """Who is asked, as typed. `record`: where a started server's record is written."""

    server: str | None = None
    core: bool = False
    trust_remote_code: bool = False
    record: Path | None = None

    def found(self, asked: MemoryOptions) -> Server | NoServer | None:
        """The server to start; None of a question that no start by flags answers."""
        is_of_flags = asked.names_a_start and not asked.deployment
        if self.core or asked.measure or asked.from_run or asked.from_log or not is_of_flags:
            if self.server is not None:
                raise UsageError(
                    "--server starts a server by its flags alone", "leave out --server, or what is beside it"
                )
            return None
        found = find_server(self.server, asked.flags.sglang_version or release_of_image(asked.command))
        if isinstance(found, NoServer) and (self.server is not None or found.has_sglang):
            raise UsageError(found.why, found.remedy)
        return found

    def options(self, server: Server) -> ServerOptions:
        return ServerOptions(server, self.trust_remote_code, self.record)


def answered(asked: MemoryOptions, who: Who, out: Output) -> Answer:
    """From a server where one is there; of files and measurements, and without one, from the runtime core."""
    given = of_project(asked)
    found = who.found(given)
    if isinstance(found, Server):
        return asked_of(given, who.options(found), out)
    _refuse_taken(asked)
    from sgl_tune.memory.answer import answer

    return answer(asked, out)


def fit_by(asked: MemoryOptions, who: Who, goals: FitOptions, out: Output) -> tuple[Fit, Release, str]:
    """The largest start, with the release by whose names its flags are printed, and a heading."""
    check_alone(asked)
    given = of_project(asked)
    found = who.found(given)
    if isinstance(found, Server):
        return fitted_on_server(given, goals, who.options(found), out)
    _refuse_taken(asked)
    from sgl_tune.memory.answer import fitted

    return fitted(asked, goals, out)


def _refuse_taken(asked: MemoryOptions) -> None:
    if asked.taken is not None:
        raise UsageError("--taken is of a GPU on which a server is started", "name the server: --server PATH")


def of_project(asked: MemoryOptions) -> MemoryOptions:
    """With the flags and the command of the project file's deployment, where that is what is meant."""
    if asked.command or asked.from_run or asked.from_log:
        return asked
    chosen = chosen_of_project(asked.flags, asked.deployment)
    if chosen is None:
        return asked
    flags, command = chosen
    return replace(asked, flags=flags, command=command, deployment=None)
