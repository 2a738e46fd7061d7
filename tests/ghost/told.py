"""Reads back the events that the code inside a server reports."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from runtime.ghost.inside import stream
from runtime.record.events import Event


def told(monkeypatch: pytest.MonkeyPatch, part: Callable[[], object]) -> list[Event]:
    """Return the events that `part` reports while it runs."""
    monkeypatch.setattr(stream, "_stream", None)
    ours, theirs = os.pipe()
    with os.fdopen(ours) as lines:
        try:
            stream.open_stream(theirs)
            part()
        finally:
            os.close(theirs)
        return [dict(json.loads(line)) for line in lines]
