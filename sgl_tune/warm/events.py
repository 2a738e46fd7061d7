"""What workers tell their launcher: JSON lines, one file a worker, so a killed worker leaves what it said."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALIVE = "alive"  # the process runs
START = "start"  # it has its device and its group
PROGRESS = "progress"  # a measurement ended
TUNED = "tuned"  # an op is decided in every bucket, on every worker alike
ERROR = "error"
DONE = "done"

HEARTBEAT_SECONDS = 1.0


def events_path(folder: Path, worker: int) -> Path:
    return folder / f"events.{worker}.jsonl"


class Reporter:
    """The worker's end. A daemon thread says that the process lives: a stopped one is noticed in seconds."""

    def __init__(self, folder: Path, worker: int) -> None:
        # A bare descriptor: a buffered file locked by a daemon thread aborts the interpreter at exit.
        self._file = os.open(events_path(folder, worker), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        threading.Thread(target=self._beat, daemon=True).start()

    def say(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.time(), **fields})
        os.write(self._file, line.encode() + b"\n")

    def _beat(self) -> None:
        while True:
            self.say(ALIVE)
            time.sleep(HEARTBEAT_SECONDS)


@dataclass
class Tail:
    """The launcher's end: whole new lines since the last look. A torn last line waits for its rest."""

    path: Path
    _offset: int = 0
    _rest: bytes = b""
    heard_at: float = field(default_factory=time.monotonic)
    moved_at: float = field(default_factory=time.monotonic)

    def new_events(self) -> list[dict[str, Any]]:
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                chunk = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = [json.loads(line) for line in lines]
        if events:
            self.heard_at = time.monotonic()
        if any(event["kind"] != ALIVE for event in events):
            self.moved_at = time.monotonic()
        return events
