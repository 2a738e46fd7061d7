"""What a part of the half inside a server says, read back from its stream."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from runtime.ghost.inside import stream
from runtime.record.events import Event


def told(monkeypatch: pytest.MonkeyPatch, part: Callable[[], object]) -> list[Event]:
    """The events that `part` says while it runs."""
    monkeypatch.setattr(stream, "_stream", None)
    ours, theirs = os.pipe()
    with os.fdopen(ours) as lines:
        try:
            stream.open_stream(theirs)
            part()
        finally:
            os.close(theirs)
        return [dict(json.loads(line)) for line in lines]
