"""What can notice a wrong rule, in its smallest parts: a recorded command, a test item."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.places import TREE
from tests.oracle import ours
from tests.oracle.commands import Command
from tests.oracle.compare import Tally
from tests.oracle.record import ARCHITECTURES, COMBINATIONS, RARE, RECORDED, read

REFUSALS = TREE / "tests/server/refusal_cases.jsonl.gz"
# Those whose every command is a unit here.
RECORDINGS = ("test_recorded_", "test_refusal_cases")
_SERVER = sorted(TREE.glob("tests/server/test_*.py"))
_FILES = {
    "tests/runtime": (
        *("pool_plan", "parallel", "fused_shared_experts", "graphs", "moe_backends", "family_fields"),
        *("weights", "hybrid_weights", "encoders", "deepep"),
    ),
    "tests/sgl_tune/cache": ("flashinfer_versions", "loader", "environment", "access"),
    "tests/sgl_tune": (
        *("keys", "plan", "verdict", "tuning_memory", "nearest", "presets", "warm_dry_run", "warm_verdict"),
        *("deployment", "server_command", "server_config"),
    ),
    "tests/stock": ("keys_stock", "lookup_rules"),
    "tests/oracle": ("mistakes",),
}  # fmt: skip
TESTS = (
    *(f"tests/server/{file.name}" for file in _SERVER if not file.name.startswith(RECORDINGS)),
    *(f"{folder}/test_{name}.py" for folder, names in _FILES.items() for name in names),
)


@dataclass(frozen=True)
class Unit:
    """`stamp`: what it does is the same while this is."""

    name: str
    stamp: str
    holds: Callable[[], bool]


def commands() -> Iterator[Unit]:
    for path in (RECORDED, ARCHITECTURES, COMBINATIONS, RARE):
        for command, theirs in read(path):
            yield Unit(f"{path.name}: {_told(command)}", repr(theirs), _Recorded(command, theirs))
    with gzip.open(REFUSALS, "rt") as file:
        for line in file:
            case = json.loads(line)
            command = Command(0, case["release"], case["gpu"], case["model"], tuple(case["argv"]))
            yield Unit(f"{REFUSALS.name}: {_told(command)}", line, _Refused(command, case["refused"]))


def items(session: pytest.Session) -> Iterator[Unit]:
    for item in session.items:
        yield Unit(item.nodeid, _state(item.path), _Item(item))


@cache
def _state(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _told(command: Command) -> str:
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
class _Item:
    item: pytest.Item

    def __call__(self) -> bool:
        return not any(report.failed for report in runtestprotocol(self.item, log=False, nextitem=None))
