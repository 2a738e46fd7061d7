"""Ask a server about a command: what it resolves, and what its ranks tune and read."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.ghost.gpus import Gpu
from runtime.record.record import Record
from runtime.sglang.kept_files import TILES
from runtime.sglang.tactics import Tactics
from sgl_tune.asking.ask import opened
from sgl_tune.asking.asking import Answers, Listener
from sgl_tune.asking.question import Question
from sgl_tune.asking.whom import ByServer
from sgl_tune.deployment.cache_dir import default_cache_dir
from sgl_tune.deployment.container import CACHE_FOLDER
from sgl_tune.deployment.flag_names import value_meant
from sgl_tune.deployment.launch import container_of
from sgl_tune.errors import CheckFailed, UsageError
from sgl_tune.reading import bounded_bytes
from sgl_tune.recorded.caches import files_of
from sgl_tune.recorded.plan import RecordedPlan, Whose, plan_of
from sgl_tune.servers.server import Server

if TYPE_CHECKING:
    from sgl_tune.deployment.pasted_command import Around

GATES = "gates"
_LARGEST = 16 << 20  # bytes of a rank file
_THE_STARTS_OWN = ("flashinfer_version", "gpu")
MOST_RANKS = 1024  # ranks of one server


@dataclass(frozen=True)
class Asked:
    """One command for one server. `say`: gets the events of each start."""

    question: Question
    whose: Whose
    answers: Answers
    say: Listener

    def settled(self) -> Record:
        """Return the record of what the server resolves, from a kept complete start or a short one."""
        if (kept := self.answers.kept(self.question)) and kept.settled is not None:
            return kept
        return self.answers.answer(replace(self.question, until=GATES), self.say)

    def reading(self, metadata: Mapping[str, str] | None = None) -> "Asked":
        """Return the same question with the rank files that are here. The server reads them in the
        environment in which they were tuned, except for its own FlashInfer and GPU, and for `metadata`."""
        root, record = self.whose.cache_dir, self.settled()
        names = [*files_of([record], is_draft=False), *files_of([record], is_draft=True)]
        files = {name: raw for name in names if (raw := _bytes(root / name)) is not None}
        told = {**_own_environment(files.values()), **(metadata or {})}
        return replace(self, question=replace(self.question, tactics=Tactics(files, told, self.tiles)))

    @property
    def tiles(self) -> Path | None:
        """Return the folder of Triton's configurations that the server is given, by its command's variable,
        in the root, or by this user's variable."""
        given, ours = (told.get(TILES) for told in (self.question.environment, os.environ))
        named = [Path(one) for one in (given, str(self.whose.cache_dir / "moe_configs"), ours) if one]
        return next((one.absolute() for one in named if one.is_dir()), None)

    @property
    def handed(self) -> frozenset[str]:
        """Return the names of the rank files that a start finds."""
        return frozenset(self.question.tactics.files if self.question.tactics else ())

    def plan(self, workers: int = 1) -> RecordedPlan:
        """Return the plan from complete starts of the ranks that may differ."""
        plan = plan_of(records_of(self.question, self.answers, self.say), self.whose, workers)
        for text in self.whose.notes:
            if plan.all_caches and text.startswith(CACHE_FOLDER):
                self.say({"event": "doubt", "text": text})
        return plan

    def of(self, server: Server, gpu: Gpu, say: Listener) -> "Asked":
        """Return the same command for another server or GPU."""
        return replace(self, question=replace(self.question, server=server, gpu=gpu), say=say)


@contextmanager
def asking(by: ByServer, server: Server, say: Listener) -> Iterator[Asked]:
    with opened(server, by) as (typed, question, answers):
        name, around = typed.title.rstrip("/").rpartition("/")[2], _around(by, typed)
        for text in around.warnings:
            if not text.startswith(CACHE_FOLDER):  # said once it is known that something is tuned
                say({"event": "doubt", "text": text})
        whose = Whose(
            name, typed.title, Path(around.cache_dir), typed.argv, (*around.warnings, *around.notes)
        )
        yield Asked(question, whose, answers, say)


def _bytes(path: Path) -> bytes | None:
    """Return a file's bytes, or None if it cannot be read: `verify` says why."""
    try:
        return bounded_bytes(path, _LARGEST)
    except (OSError, ValueError):
        return None


def _own_environment(files: Iterable[bytes]) -> dict[str, str]:
    for raw in files:
        with suppress(ValueError, RecursionError):
            document = json.loads(raw)
            told = document.get("_metadata") if isinstance(document, dict) else None
            if isinstance(told, dict):
                kept = {name: value for name, value in told.items() if isinstance(value, str)}
                return {name: value for name, value in kept.items() if name not in _THE_STARTS_OWN}
    return {}


def _around(by: ByServer, question: Question) -> "Around":
    from sgl_tune.deployment.pasted_command import Around, around_server

    container, named = container_of(by.command), by.flags.target
    if by.server is not None:
        named = replace(named, sglang_version=question.server.sglang)
    if container is not None:
        return around_server(container, named, question.environment)
    here = default_cache_dir({**os.environ, **question.environment})
    return Around(named.cache_dir or str(here))


def records_of(question: Question, answers: Answers, say: Listener) -> list[Record]:
    """Return the records of the first rank, of the first of each later stage, and of the last of each
    stage. If a stage's first and last look up different entries, all its ranks are started."""
    records = {0: _one(question, answers, say, 0)}
    sizes = (records[0].arguments.get(name) for name in ("tp_size", "pp_size"))
    tp, pp = (size if isinstance(size, int) and size > 0 else 1 for size in sizes)
    if tp * pp > MOST_RANKS:
        raise CheckFailed(f"this server has {tp * pp} ranks, and a warm asks at most {MOST_RANKS}")
    for stage in range(pp):
        first, last = stage * tp, stage * tp + tp - 1
        for rank in sorted({first, last} - records.keys()):
            records[rank] = _one(question, answers, say, rank)
        if _asks(records[first]) != _asks(records[last]):
            for rank in range(first + 1, last):
                records[rank] = _one(question, answers, say, rank)
    return [records[rank] for rank in sorted(records)]


def _asks(record: Record) -> frozenset[str]:
    return frozenset(key for call in record.calls for key in call.keys)


def _one(question: Question, answers: Answers, say: Listener, rank: int) -> Record:
    record = answers.answer(replace(question, rank=rank), say)
    ending = record.ending
    if ending.how == "refused":
        _usage, _, said = (ending.text or "").strip().rpartition(": error: ")  # all flags precede it
        raise UsageError(f"SGLang refuses this command: {said[-600:]}", value_meant(said))
    if ending.how != "ready" and not any(call.mode == "tune" for call in record.calls):
        where = f"in {ending.phase}: " if ending.phase else ""
        text = (ending.text or "").strip().splitlines() or ["it did not say why"]
        what, way = "this server does not start", "`sgl-tune mem-report` with the same words shows the start"
        if ending.type in ("ImportError", "ModuleNotFoundError"):  # an image may have the package
            what = "not known: the server that is asked lacks a package"
            way = "install it there, or name the deployment's own server with --server"
        raise CheckFailed(f"{what}: {where}{ending.type or ending.how}: {text[0][:600]}", way)
    return record
