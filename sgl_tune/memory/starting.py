"""The result of starting a server, either SGLang on the ghost or the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.record.record import Record
from runtime.sglang.releases import Release
from sgl_tune.memory.change import Change
from sgl_tune.memory.layout import Layout
from sgl_tune.memory.report import MemoryReport, worst


@dataclass(frozen=True, slots=True)
class Started:
    """The result of starting a server. `reports`: one per started rank. `graphs`: the largest batch of a
    decode graph. `seconds`: CPU seconds. `record`: the record of the leading rank, if SGLang itself was
    started."""

    reports: tuple[MemoryReport, ...]
    layout: Layout
    graphs: int | None = None
    seconds: float = 0.0
    record: Record | None = None

    @property
    def report(self) -> MemoryReport:
        """Return the leading rank's report: it ran out of memory, or has the least free memory."""
        return worst(self.reports)


class Starter(Protocol):
    """Starts one server several times. `least`: stop a start when a phase leaves fewer free bytes."""

    @property
    def release(self) -> Release: ...
    def start(self, change: Change, least: int | None = None) -> Started: ...
    def check(self, change: Change) -> None:
        """Raise UsageError for a change that this server cannot have, before anything is started."""

    def command(self, change: Change) -> str:
        """Return the user's own server command with this change."""


# For a search: start with a change, until a phase leaves fewer free bytes than given.
Start = Callable[[Change, int | None], Started]
