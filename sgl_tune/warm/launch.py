"""Run one worker per device: send jobs, pass their messages on, and name the worker that failed."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sgl_tune.errors import WorkFailed
from sgl_tune.processes.command import THIS, Python
from sgl_tune.processes.crew import Crew, Event, Member
from sgl_tune.processes.scratch import Scratch
from sgl_tune.warm.events import DONE, ERROR, GATHER, GATHERED, JOB, START, TEAM

POLL_SECONDS = 0.1

OnEvent = Callable[[int, Event], None]


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of a search, one per device."""

    workers: int
    device: str
    gpus: tuple[int, ...] = ()
    timeout: float = 600.0
    silence: float = 15.0

    def describe(self, worker: int) -> str:
        gpu = self.gpus[worker % len(self.gpus)] if self.gpus else 0
        where = f" (GPU {gpu})" if self.device == "cuda" else ""
        return f"worker {worker} of {self.workers}{where}"


class Workers:
    """Worker processes that do one job."""

    def __init__(self, module: str, scratch: Scratch, fleet: Fleet, python: Python = THIS) -> None:
        self.fleet = fleet
        self._crew = Crew(module, fleet.workers, scratch, python)
        for member in self._crew.members:
            member.send(TEAM, rank=member.number, size=fleet.workers, device=fleet.device)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, job: Mapping[str, Any], on_event: OnEvent) -> Mapping[str, Any]:
        """Run a job on every worker; return the first worker's result when all have succeeded."""
        for member in self._crew.members:
            member.moved_at = time.monotonic()
            member.send(JOB, local=member.number, **job)
        return _Watch(self._crew, self.fleet, on_event).until_done()

    def close(self) -> None:
        self._crew.close()


class _Watch:
    def __init__(self, crew: Crew, fleet: Fleet, on_event: OnEvent) -> None:
        self._crew, self._fleet, self._on_event = crew, fleet, on_event
        self._started: set[int] = set()
        self._reports: dict[int, Mapping[str, Any]] = {}
        self._told: dict[int, Any] = {}

    def until_done(self) -> Mapping[str, Any]:
        while len(self._reports) < self._fleet.workers:
            for member, event in self._crew.events(POLL_SECONDS):
                self._on_event(member.number, event)
                self._hear(member, event)
            for member in self._crew.ended:
                if member.number not in self._reports:
                    raise self._lost(member, member.fate)
            self._look_for_hung()
        return self._reports[0]

    def _hear(self, member: Member, event: Event) -> None:
        if event["kind"] == START:
            self._started.add(member.number)
        elif event["kind"] == GATHER:
            self._told[member.number] = event["value"]
            if len(self._told) == self._fleet.workers:
                values = [self._told[number] for number in sorted(self._told)]
                self._told.clear()
                for one in self._crew.members:
                    one.moved_at = time.monotonic()
                    one.send(GATHERED, values=values)
        elif event["kind"] == DONE:
            self._reports[member.number] = event["report"]
        elif event["kind"] == ERROR:
            member.show_output()
            who = self._fleet.describe(member.number)
            raise WorkFailed(f"{who}: {event['message']}", event.get("remedy"))

    def _look_for_hung(self) -> None:
        now = time.monotonic()
        for member in self._crew.members:
            silent, still = now - member.heard_at, now - member.moved_at
            waits = member.number in self._told or member.number in self._reports
            if silent > self._fleet.silence and member.number in self._started:
                raise self._lost(member, f"gave no sign of life for {silent:.0f} s and was stopped")
            if still > self._fleet.timeout and not waits:
                raise self._lost(member, f"made no progress for {still:.0f} s (--timeout) and was stopped")

    def _lost(self, member: Member, how: str) -> WorkFailed:
        member.show_output()
        return WorkFailed(f"{self._fleet.describe(member.number)} {how}", member.last_words)
