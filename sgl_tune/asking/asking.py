"""Asks a server: the record of a start, from the ghost, or kept from an earlier time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from runtime.ghost.build import NotBuilt
from runtime.ghost.halves import Kind, loadable, modules_of
from runtime.ghost.outside import table
from runtime.record.events import Event
from runtime.record.parts import Inexact
from runtime.record.record import Record
from runtime.sglang.asking import Asked, Asker
from runtime.sglang.command import Checked, Refused, checked
from runtime.sglang.server_process import ServerBroken
from sgl_tune.asking.kept import Kept, digest_of
from sgl_tune.asking.question import Question
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.servers.server import Server


@dataclass(frozen=True)
class Asking:
    """How questions are asked: of which server, whether its models' own code may run, and anew if `fresh`."""

    server: Server
    trust_remote_code: bool = False
    fresh: bool = False


class Answers:
    """Answers questions to one server; processes that imported it are kept until it closes."""

    def __init__(self, asking: Asking, say: Callable[[Event], None] = lambda event: None) -> None:
        self._asking, self._say = asking, say
        self._kept = Kept(cache_folder() / "records")
        self._askers: dict[tuple[object, ...], Asker] = {}
        self._closing = ExitStack()

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.__exit__(kind, error, trace)

    def answer(self, question: Question) -> Record:
        command = self._check(question)
        modules = self._modules(question)
        digest = self._digest(question, command, modules)
        kept = None if self._asking.fresh else self._kept.find(digest)
        if kept is not None:
            return kept
        try:
            outside = {"numbers": table().text()}
            asker = self._asker(question, command, modules)
            record = asker.ask(command.argv, question.rank, outside, self._say)
        except NotBuilt as error:
            raise UsageError(str(error)) from error
        except ServerBroken as error:
            raise WorkFailed(f"SGLang {self._asking.server.sglang} cannot be imported: {error}") from error
        if record.ending.how == "broken":
            raise WorkFailed(f"the start ended without an answer: {(record.ending.text or '')[-600:]}")
        record = replace(record, inexact=(*record.inexact, *_left_out(command)))
        self._kept.keep(digest, record)
        return record

    def _check(self, question: Question) -> Checked:
        trust = self._asking.trust_remote_code
        try:
            return checked(question.argv, question.environment, trust_remote_code=trust)
        except Refused as error:
            raise UsageError(error.message, error.remedy) from error

    def _modules(self, question: Question) -> dict[str, str]:
        """The compiled modules whose host code the start can run, by name."""
        server, arch = self._asking.server, question.gpu.arch
        if server.flashinfer is None:
            return {}
        root = cache_folder()
        found = modules_of(server.packages, arch, cuda=server.cuda, root=root)
        return loadable(found, Kind(server.flashinfer, arch), root)

    def _digest(self, question: Question, command: Checked, modules: dict[str, str]) -> str:
        server = self._asking.server
        parts = {
            "server": server.fingerprint(),
            "python": (str(server.python), server.python_version),
            "argv": command.argv,
            "environment": dict(command.environment),
            "gpu": question.gpu.row(),
            "total": question.total_bytes,
            "rank": question.rank,
            "modules": {name: _file(path) for name, path in modules.items()},
            "remote_code": command.remote_code,
            "left": [one.name for one in command.left if one.matters],
        }
        return digest_of(parts, (command.model, *(path for path in command.readable if path.is_dir())))

    def _asker(self, question: Question, command: Checked, modules: dict[str, str]) -> Asker:
        variables = tuple(sorted(command.environment.items()))
        key = (question.gpu.key, question.total_bytes, command.remote_code, variables)
        if key not in self._askers:
            server = self._asking.server
            asked = Asked(
                server.python,
                server.packages,
                question.gpu,
                cache_folder(),
                question.total_bytes,
                modules,
                command.remote_code,
            )
            self._askers[key] = self._closing.enter_context(Asker(asked, command.environment))
        return self._askers[key]


def _left_out(command: Checked) -> list[Inexact]:
    """What the command asked for, may matter, and was not given to the start."""
    return [Inexact("command", one.name, "", "", one.why) for one in command.left if one.matters]


def _file(path: str) -> tuple[str, int, int]:
    status = Path(path).stat()
    return path, status.st_size, status.st_mtime_ns


def cache_folder() -> Path:
    """Where sgl-tune keeps what can be made again."""
    named = os.environ.get("XDG_CACHE_HOME")
    above = Path(named) if named and Path(named).is_absolute() else Path.home() / ".cache"
    return above / "sgl-tune"
