"""What can notice a wrong rule, in its smallest parts: a recorded command, a test item."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.book import cases as book
from tests.book.answers import answer
from tests.mutants.places import TREE
from tests.oracle import ours
from tests.oracle.commands import Command
from tests.oracle.compare import Tally
from tests.oracle.record import (
    ARCHITECTURES,
    COMBINATIONS,
    EDGES,
    RARE,
    RECORDED,
    REFUSALS,
    read,
    refusals,
)

RECORDED_COMMANDS = (RECORDED, ARCHITECTURES, COMBINATIONS, RARE, EDGES)
# Those whose every command is a unit here.
RECORDINGS = {
    "test_deployments.py",
    *(f"test_recorded_{name}.py" for name in ("architectures", "combinations", "edges", "rare", "servers")),
}
_FOLDERS = ("book", "server", "runtime", "sgl_tune", "sgl_tune/memory")
_FILES = {
    "memory": ("deepep_starts",),
    "sgl_tune/cache": ("flashinfer_versions", "loader", "environment", "access"),
    "stock": ("keys_stock", "runtime_keys_stock", "lookup_rules"),
    "oracle": ("mistakes", "lookups", "published_commands"),
    "warm": ("tunable",),
}
# What asks no rule: processes, terminals, kernels, allocators, the search.
_ELSEWHERE = {
    f"test_{name}.py"
    for name in (
        *("refusal_cases", "measure", "page_in_browser", "lost_output", "held_memory", "full_disk", "out"),
        *("completion", "reading", "records", "schemas", "special_files", "usage", "cli", "examples"),
        *(
            "model_sources",
            "allocator",
            "cpu_kernels",
            "search",
            "tracker",
            "memory_history",
            "snapshot",
            "opaque",
        ),
        *("autotune_session", "allocation_equality", "flashinfer_call", "server_log", "html"),
        # Ranks in processes of their own.
        *("comm", "dispatcher", "dp_attention", "logits_processor", "model_runner", "parallel_numerics"),
        *("phases", "uneven_ranks"),
    )
}
_FOUND = (*(path for one in _FOLDERS for path in sorted(TREE.glob(f"tests/{one}/test_*.py"))),)
TESTS = (
    *(str(path.relative_to(TREE)) for path in _FOUND if path.name not in RECORDINGS | _ELSEWHERE),
    *(f"tests/{folder}/test_{name}.py" for folder, names in _FILES.items() for name in names),
)


@dataclass(frozen=True)
class Unit:
    """`stamp`: what it does is the same while this is."""

    name: str
    stamp: str
    holds: Callable[[], bool]

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]

    @property
    def group(self) -> str:
        """Its test, or the release that it asks of in its recording."""
        return " ".join(self.name.partition("[")[0].split()[:2])


def commands() -> Iterator[Unit]:
    for path in RECORDED_COMMANDS:
        for command, theirs in read(path):
            yield Unit(f"{path.name}: {told(command)}", repr(theirs), _Recorded(command, theirs))
    for command, refused in refusals():
        yield Unit(f"{REFUSALS.name}: {told(command)}", repr(refused), _Refused(command, refused))
    for number, (case, then) in enumerate(book.read()):
        yield Unit(f"{book.BOOK.name}: {case.release} {number} {case}", repr(then), _Decided(case, then))


def items(session: pytest.Session) -> Iterator[Unit]:
    for item in session.items:
        yield Unit(item.nodeid, _state(item.path), _Item(item))


@cache
def _state(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def told(command: Command) -> str:
    return f"{command.release} {command.gpu} {' '.join(command.argv)}"


@dataclass(frozen=True)
class _Recorded:
    command: Command
    theirs: dict[str, Any]

    def __call__(self) -> bool:
        found = Tally()
        found.add(self.command, ours.our_answer(self.command), self.theirs)
        return not any(found.apart.values())


@dataclass(frozen=True)
class _Refused:
    command: Command
    refused: str | None

    def __call__(self) -> bool:
        return bool(ours.our_answer(self.command).get("refused") == self.refused)


@dataclass(frozen=True)
class _Decided:
    case: book.Case
    then: book.Answer

    def __call__(self) -> bool:
        return answer(self.case) == self.then


@dataclass(frozen=True)
class _Item:
    item: pytest.Item

    def __call__(self) -> bool:
        return not any(report.failed for report in runtestprotocol(self.item, log=False, nextitem=None))
