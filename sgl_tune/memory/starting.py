"""What starting a server came to, whoever started it: SGLang on the ghost, or the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtime.record.record import Record
from runtime.sglang.releases import Release
from sgl_tune.memory.change import Change
from sgl_tune.memory.layout import Layout
from sgl_tune.memory.report import MemoryReport, worst


@dataclass(frozen=True, slots=True)
class Started:
    """`reports`: one for each rank that was started. `graphs`: the largest batch of a decode graph.
    `seconds` of CPU. `record`: of the rank that leads, where SGLang itself was started."""

    reports: tuple[MemoryReport, ...]
    layout: Layout
    graphs: int | None = None
    seconds: float = 0.0
    record: Record | None = None

    @property
    def report(self) -> MemoryReport:
        """The rank that leads: it dies, or has the least to spare."""
        return worst(self.reports)


class Starter(Protocol):
    """Starts one server again and again. `least`: end the start once a phase leaves fewer bytes."""

    @property
    def release(self) -> Release: ...
    def start(self, change: Change, least: int | None = None, snapshot: Path | None = None) -> Started: ...
    def check(self, change: Change) -> None:
        """Raises UsageError for a change that this server cannot have, before anything is started."""

    def command(self, change: Change) -> str:
        """The user's own server command with this change."""


# For a search: starts with a change, up to the phase that leaves fewer bytes than are given.
Start = Callable[[Change, int | None], Started]
