"""A process's own end of its pipes: commands come in, events go out, a JSON line each."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from queue import SimpleQueue
from typing import Any

ALIVE = "alive"  # the process runs
HEARTBEAT_SECONDS = 1.0


class Child:
    """Two threads: one says that the process lives, one waits for commands and ends it with their pipe."""

    def __init__(self, commands: int, events: int) -> None:
        self._commands, self._events = commands, events
        self._asked: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._saying = threading.Lock()
        for work in (self._beat, self._listen):
            threading.Thread(target=work, daemon=True).start()

    def say(self, kind: str, **fields: Any) -> None:
        line = memoryview(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        with self._saying:
            while line:
                line = line[os.write(self._events, line) :]

    def command(self) -> dict[str, Any]:
        return self._asked.get()

    def commands(self) -> Iterator[dict[str, Any]]:
        while True:
            yield self.command()

    def _beat(self) -> None:
        while True:
            try:
                self.say(ALIVE)
            except BrokenPipeError:
                leave(1)
            time.sleep(HEARTBEAT_SECONDS)

    def _listen(self) -> None:
        with os.fdopen(self._commands, "rb") as pipe:
            for line in pipe:
                self._asked.put(json.loads(line))
        leave(0)


def run(module: str, commands: int, events: int) -> None:
    """Never comes back: torch's own goodbyes take longer than the system's, and nothing here needs one."""
    code = 1
    try:
        child = Child(commands, events)
        import_module(module).main(child)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


def leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)
