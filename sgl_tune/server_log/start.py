"""One start in a log: events with their times, and each rank's memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sgl_tune.server_log.bars import Bars
from sgl_tune.server_log.ends import Death
from sgl_tune.server_log.findings import Finding
from sgl_tune.server_log.marks import Edge, Mark
from sgl_tune.server_log.rank_log import RankLog


class Speaker(NamedTuple):
    """A process in a pod or container. The server's own process and other loggers have no rank."""

    source: str
    rank: str

    @property
    def name(self) -> str:
        return f"{self.source} {self.rank}".strip() or "server"


class Event(NamedTuple):
    at: float
    speaker: Speaker
    mark: Mark
    said: dict[str, str]
    phase: str = ""


class Word(NamedTuple):
    at: float
    text: str


@dataclass
class Start:
    """One start in a log. `spoke`: each source's last line that shows no death. `is_launched`: by us."""

    began: float = 0.0
    ended: float = 0.0
    is_timed: bool = False
    is_launched: bool = False
    listens: bool = False
    events: list[Event] = field(default_factory=list)
    ranks: dict[Speaker, RankLog] = field(default_factory=dict)
    bars: Bars = field(default_factory=Bars)
    last_words: dict[Speaker, Word] = field(default_factory=dict)
    ready: Word | None = None
    server_args: dict[tuple[str, str], str] = field(default_factory=dict)  # by source and node
    deaths: list[Death] = field(default_factory=list)
    findings: dict[Finding, int] = field(default_factory=dict)
    spoke: dict[str, int] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return self.ended if self.ready is None else self.ready.at

    @property
    def shows_a_start(self) -> bool:
        return bool(self.ranks or self.deaths or self.ready or self.server_args)

    @property
    def capturing(self) -> str:
        """Return the graphs that are being captured, or ""."""
        opened = (event.phase for event in reversed(self.events) if event.mark.edge is Edge.opens)
        return next((phase for phase in opened if phase.endswith("graphs")), "")

    @property
    def speakers(self) -> set[Speaker]:
        return {event.speaker for event in self.events if event.speaker.rank}

    def facts(self, name: str) -> Iterator[Event]:
        return (event for event in self.events if event.mark.fact == name)
