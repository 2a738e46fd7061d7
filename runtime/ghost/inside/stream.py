"""How a server's process reports to sgl-tune: one JSON object per line, on a pipe that only they share."""

import json
import os
import threading
from typing import Any


class Stream:
    """Writes events. If the reader has gone, this process exits, because nobody needs the server."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.said = 0

    def say(self, event: str, **fields: Any) -> None:
        self.said += 1
        line = json.dumps({"event": event, **fields}, separators=(",", ":"), default=str) + "\n"
        with self._lock:
            left = memoryview(line.encode())
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BrokenPipeError:
                    os._exit(141)


_stream: Stream | None = None


def open_stream(descriptor: int) -> None:
    global _stream
    os.set_inheritable(descriptor, False)
    _stream = Stream(descriptor)


def close() -> None:
    """Report nothing from here on."""
    global _stream
    _stream = None


def say(event: str, **fields: Any) -> None:
    """Write one event, or nothing if no stream is open, as in tests that import only a part."""
    if _stream is not None:
        _stream.say(event, **fields)


def said() -> int:
    return _stream.said if _stream is not None else 0
