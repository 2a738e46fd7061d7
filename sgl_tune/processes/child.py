"""A process's end of its pipes: commands come in and events go out, as JSON lines."""

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
    """Two threads: one reports that the process lives; one reads commands, and ends it with their pipe."""

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
    """Run a module's `main`, then exit without the shutdown of Python and torch, which is slow."""
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
