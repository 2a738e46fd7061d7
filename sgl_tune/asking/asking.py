"""Get the record of a server's start: from a new start on the ghost, or kept from an earlier question."""

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from runtime.baking.baking import Baking, nvcc_says
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
_SECONDS, _SECONDS_OF_BAKING = 600, 36_000  # of CPU
_own_digest = cache(lambda: digest_of_files(own_source()))
_fingerprint = cache(Server.fingerprint)


@dataclass(frozen=True)
class Asking:
    """How questions are asked. `work`: our folder, which may hold folders made for models. `fresh`: do not
    answer with a kept record. `fold`: of equal layers run the first ones alone."""

    work: Path
    trust_remote_code: bool = False
    fresh: bool = False
    fold: bool = False
    outside: Outside = field(default_factory=table)


class Answers(ExitStack):
    """Answers questions to servers. Processes that imported a server stay until this object is closed."""

    def __init__(self, asking: Asking) -> None:
        super().__init__()
        self.asking = asking
        self._kept = kept_here()
        self._askers: dict[object, Any] = {}

    def kept(self, question: Question) -> Record | None:
        """Return an earlier record, if nothing that it depends on has changed."""
        return None if self.asking.fresh else self._kept.find(self._digest(question, self.check(question)))

    def answer(self, question: Question, say: Listener | None = None, snapshot: Path | None = None) -> Record:
        """Return the record of a start. `say` gets each event. `snapshot`: a file for torch's own history.
        A record that `say` stopped is incomplete and is not kept."""
        command = self.check(question)
        digest = self._digest(question, command)
        kept = None if self.asking.fresh or snapshot is not None else self._kept.find(digest)
        if kept is not None:
            return kept
        if say is not None:
            say({"event": "starting"})
        record, made = self._start(question, command, say, snapshot is not None)
        if snapshot is not None and made is not None:
            _copy(made, snapshot)
        left = (Inexact("command", one.name, "", "", one.why) for one in command.left if one.matters)
        record = replace(record, inexact=(*record.inexact, *left))
        from runtime.sglang.server_process import STOPPED

        if record.ending.how != "broken":
            self._kept.keep(digest, record)
        elif record.ending.text != STOPPED:
            said = (record.ending.text or "")[-600:]
            raise WorkFailed(f"the start ended without an answer: {said}", way_out(said))
        return record

    def bake(self, question: Question, baking: Baking, say: Listener) -> Record:
        """Return the record of a start that compiles its kernels for real. It is never kept."""
        return self._start(question, self.check(question), say, baking=baking)[0]

    def _start(
        self,
        question: Question,
        command: Checked,
        say: Listener | None,
        snapshot: bool = False,
        baking: Baking | None = None,
    ) -> tuple[Record, Path | None]:
        """Return a new start's record, and the file in which it wrote torch's history."""
        from runtime.ghost.build import NotBuilt
        from runtime.sglang.server_process import Request, ServerBroken

        try:
            asker = self._asker(question, command, baking)
            request = Request(
                command.argv,
                question.rank,
                {"numbers": _outside(question, self.asking)},
                snapshot=snapshot,
                until=question.until,
                title=question.title or None,
                tactics=question.tactics,
                fold=self.asking.fold,
            )
            seconds = _SECONDS if baking is None else _SECONDS_OF_BAKING
            record: Record = asker.ask(request, say, seconds)
        except NotBuilt as error:
            raise UsageError(str(error)) from error
        except ServerBroken as error:
            raise WorkFailed(f"SGLang {question.server.sglang} cannot be imported: {error}") from error
        return record, asker.snapshot

    def check(self, question: Question) -> Checked:
        """Return the flags and variables that the start is given, and those it is not."""
        try:
            trusts = self.asking.trust_remote_code
            return checked(question.argv, question.environment, trust_remote_code=trusts)
        except Refused as error:
            raise UsageError(error.message, error.remedy) from error

    def _digest(self, question: Question, command: Checked) -> str:
        parts = ingredients(question, command, self.asking)
        return digest_of({**parts, "ghost": _own_digest(), "server": _fingerprint(question.server)})

    def _asker(self, question: Question, command: Checked, baking: Baking | None) -> Any:
        from runtime.sglang.asking import Asked, Asker

        server, gpu = question.server, question.gpu
        variables = tuple(sorted(command.environment.items()))
        root = baking.root if baking else None
        key = (server.python, gpu.key, question.total_bytes, command.remote_code, variables, root)
        if key not in self._askers:
            machine = (server.python, server.folders, gpu, cache_folder(), question.total_bytes)
            asked = Asked(*machine, _halves(question), command.remote_code, baking)
            given = {**command.environment, **nvcc_says(server.python)}
            self._askers[key] = self.enter_context(Asker(asked, given))
        return self._askers[key]


def ingredients(question: Question, command: Checked, asking: Asking) -> dict[str, object]:
    """Return what an answer depends on, beside the ghost's source and the server's packages."""
    made = str(asking.work)
    return {
        "python": [str(question.server.python), question.server.python_version],
        "argv": [word.replace(made, "") for word in command.argv],
        "environment": {**command.environment, **nvcc_says(question.server.python)},
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
        "folded": asking.fold,
    }


def _outside(question: Question, asking: Asking) -> str:
    """Return the table for the C libraries. Other processes' memory is added to the context's, because
    both are there before SGLang reads the free memory."""
    context = asking.outside.numbers["context"].bytes
    return asking.outside.with_numbers(context=context + question.taken_bytes).text()


def _halves(question: Question) -> dict[str, str]:
    """Return the compiled modules, or their kept host code, that a start on this GPU may load, by name."""
    server = question.server
    return halves_for(server.packages, question.gpu.arch, cuda=server.cuda, root=cache_folder())


def _marks(modules: dict[str, str]) -> dict[str, list[object]]:
    """Return each module's path, size and time. Kept host code is named by its digest, which covers it."""
    told = [(name, path, Path(path).stat()) for name, path in sorted(modules.items())]
    return {name: [path, status.st_size, status.st_mtime_ns] for name, path, status in told}


def way_out(said: str) -> str | None:
    """Return what helps a start that ended for want of a module, if that can be had."""
    needs = re.search(r"needs what (\w+)\.\w+ answers", said)
    if needs is None or needs[1].startswith("sgl_kernel"):  # FlashInfer's modules alone can be had
        return None
    return f"`sgl-tune server modules {needs[1]} --build` compiles its host code; --from takes it"


def _copy(made: Path, out: Path) -> None:
    """Copy a file that a server's process wrote. Only a regular file is copied, never a link."""
    if made.is_symlink():
        raise WorkFailed(f"the start wrote no snapshot for {out}: {made.name} is a link")
    try:
        with open_regular(made, _LARGEST_SNAPSHOT) as source, written(out) as file:
            while block := source.read(1 << 20):
                file.write(block)
    except (OSError, ValueError) as error:
        raise WorkFailed(f"the start wrote no snapshot for {out}: {error}") from error
