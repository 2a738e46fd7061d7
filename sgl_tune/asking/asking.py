"""Asks a server: the record of a start, from the ghost, or kept from an earlier time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from runtime.ghost.halves import halves_for
from runtime.ghost.outside import Outside, table
from runtime.record.events import Event
from runtime.record.parts import Inexact
from runtime.record.record import Record
from runtime.sglang.command import Checked, Refused, checked
from sgl_tune.asking.kept import cache_folder, data_files, digest_of, digest_of_files, kept_here, own_source
from sgl_tune.asking.question import Question
from sgl_tune.errors import UsageError, WorkFailed
from sgl_tune.reading import open_regular
from sgl_tune.servers.server import Server
from sgl_tune.writing import written

Listener = Callable[[Event], object]
_LARGEST_SNAPSHOT = 4 << 30


@dataclass(frozen=True)
class Asking:
    """How questions are asked. `work`: a folder of ours in which models' folders may have been made;
    `fresh`: a kept record is no answer."""

    work: Path
    trust_remote_code: bool = False
    fresh: bool = False
    outside: Outside = field(default_factory=table)


class Answers(ExitStack):
    """Answers questions. The processes that imported a server are kept until it closes."""

    def __init__(self, asking: Asking) -> None:
        super().__init__()
        self.asking = asking
        self._kept = kept_here()
        self._askers: dict[object, Any] = {}

    def kept(self, question: Question) -> Record | None:
        """The record of an earlier time, if nothing changed that it depends on."""
        return None if self.asking.fresh else self._kept.find(self._digest(question, self.check(question)))

    def answer(self, question: Question, say: Listener | None = None, snapshot: Path | None = None) -> Record:
        """`say` sees each event of a start. torch's own history of it is written to `snapshot`.

        A record that `say` stopped is no whole start, and is not kept.
        """
        command = self.check(question)
        digest = self._digest(question, command)
        kept = None if self.asking.fresh or snapshot is not None else self._kept.find(digest)
        if kept is not None:
            return kept
        from runtime.ghost.build import NotBuilt
        from runtime.sglang.server_process import STOPPED, ServerBroken

        try:
            if say is not None:
                say({"event": "starting"})
            asker = self._asker(question, command)
            outside = {"numbers": _outside(question, self.asking)}
            record: Record = asker.ask(
                command.argv,
                question.rank,
                outside,
                say,
                snapshot=snapshot is not None,
                until=question.until,
                title=question.title or None,
                tactics=question.tactics,
            )
        except NotBuilt as error:
            raise UsageError(str(error)) from error
        except ServerBroken as error:
            raise WorkFailed(f"SGLang {question.server.sglang} cannot be imported: {error}") from error
        if snapshot is not None and asker.snapshot is not None:
            _copy(asker.snapshot, snapshot)
        left = (Inexact("command", one.name, "", "", one.why) for one in command.left if one.matters)
        record = replace(record, inexact=(*record.inexact, *left))
        if record.ending.how != "broken":
            self._kept.keep(digest, record)
        elif record.ending.text != STOPPED:
            raise WorkFailed(f"the start ended without an answer: {(record.ending.text or '')[-600:]}")
        return record

    def check(self, question: Question) -> Checked:
        """The flags and variables of a question that a start is given, and what it is not."""
        try:
            return checked(
                question.argv, question.environment, trust_remote_code=self.asking.trust_remote_code
            )
        except Refused as error:
            raise UsageError(error.message, error.remedy) from error

    def _digest(self, question: Question, command: Checked) -> str:
        parts = ingredients(question, command, self.asking)
        return digest_of({**parts, "ghost": _own_digest(), "server": _fingerprint(question.server)})

    def _asker(self, question: Question, command: Checked) -> Any:
        from runtime.sglang.asking import Asked, Asker

        server, gpu = question.server, question.gpu
        variables = tuple(sorted(command.environment.items()))
        key = (server.python, gpu.key, question.total_bytes, command.remote_code, variables)
        if key not in self._askers:
            asked = Asked(
                server.python,
                server.folders,
                gpu,
                cache_folder(),
                question.total_bytes,
                _halves(question),
                command.remote_code,
            )
            self._askers[key] = self.enter_context(Asker(asked, command.environment))
        return self._askers[key]


def ingredients(question: Question, command: Checked, asking: Asking) -> dict[str, object]:
    """What an answer depends on beside the ghost's own source and the server's packages."""
    made = str(asking.work)
    return {
        "python": [str(question.server.python), question.server.python_version],
        "argv": [word.replace(made, "") for word in command.argv],
        "environment": dict(command.environment),
        "files": digest_of_files(data_files(command.readable)),
        "remote_code": command.remote_code,
        "left": [one.name for one in command.left if one.matters],
        "gpu": question.gpu.row(),
        "total": question.total_bytes,
        "outside": _outside(question, asking),
        "rank": question.rank,
        "until": question.until,
        "title": question.title,
        "tactics": question.tactics.digest if question.tactics else None,
        "modules": _marks(_halves(question)),
        "folded": False,
    }


def _outside(question: Question, asking: Asking) -> str:
    """As the C libraries read it. What others hold is there before SGLang looks, as its own context is."""
    context = asking.outside.numbers["context"].bytes
    return asking.outside.with_numbers(context=context + question.taken_bytes).text()


def _halves(question: Question) -> dict[str, str]:
    """The compiled modules, or their host halves, that a start on this GPU may load, by name."""
    server = question.server
    return halves_for(server.packages, question.gpu.arch, cuda=server.cuda, root=cache_folder())


def _marks(modules: dict[str, str]) -> dict[str, list[object]]:
    """Each module's file, its size and its time: a half's name is its digest."""
    marks: dict[str, list[object]] = {}
    for name, path in sorted(modules.items()):
        status = Path(path).stat()
        marks[name] = [path, status.st_size, status.st_mtime_ns]
    return marks


@cache
def _own_digest() -> str:
    return digest_of_files(own_source())


@cache
def _fingerprint(server: Server) -> str:
    return server.fingerprint()


def _copy(made: Path, out: Path) -> None:
    """What a server's process wrote, which may be a link to anything: a regular file alone is copied."""
    if made.is_symlink():
        raise WorkFailed(f"the start wrote no snapshot for {out}: {made.name} is a link")
    try:
        with open_regular(made, _LARGEST_SNAPSHOT) as source, written(out) as file:
            while block := source.read(1 << 20):
                file.write(block)
    except (OSError, ValueError) as error:
        raise WorkFailed(f"the start wrote no snapshot for {out}: {error}") from error
