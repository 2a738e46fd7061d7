"""What is told of one start: the lines of the table with their times, and the facts beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sgl_tune.start_report.bars import Bars
from sgl_tune.start_report.compilers import Turn
from sgl_tune.start_report.marks import Edge, Mark
from sgl_tune.start_report.written import Written


class Speaker(NamedTuple):
    """A process, of a pod or container, by its rank: the server's own has none, nor has who logs elsewise."""

    source: str
    rank: str


class Event(NamedTuple):
    at: float
    speaker: Speaker
    mark: Mark
    said: dict[str, str]


class Word(NamedTuple):
    at: float
    text: str


@dataclass
class Told:
    """One start."""

    began: float
    events: list[Event] = field(default_factory=list)
    last_words: dict[Speaker, Word] = field(default_factory=dict)
    ended: float = 0.0
    ready: float | None = None
    ready_by: str = ""
    server_args: str | None = None
    args_of: set[str] = field(default_factory=set)
    bars: Bars = field(default_factory=Bars)
    measured: int | None = None
    build_limits: dict[int, float] = field(default_factory=dict)  # by the event: what its bar says it took
    tuned_after: dict[int, float] = field(default_factory=dict)  # by the event: tuning after that build
    errors: dict[Speaker, str] = field(default_factory=dict)  # the last line of the traceback that failed it
    notes: dict[str, None] = field(default_factory=dict)
    is_launched: bool = False  # by us: its beginning is known, and what it compiles and writes is seen
    command: str = ""
    exit_code: int | None = None
    watched: list[Turn] = field(default_factory=list)
    written: tuple[Written, ...] = ()

    @property
    def capturing(self) -> str:
        """The graphs that are captured now."""
        opened = (e.mark.phase for e in reversed(self.events) if e.mark.edge is Edge.opens)
        return next((phase for phase in opened if phase.endswith("graphs")), "")

    @property
    def ranks(self) -> set[Speaker]:
        return {event.speaker for event in self.events if event.speaker.rank}


def facts(told: Told, name: str) -> Iterator[Event]:
    return (event for event in told.events if event.mark.fact == name)
