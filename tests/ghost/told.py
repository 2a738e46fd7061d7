"""Reads back the events that the code inside a server reports."""

import json
import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from runtime.ghost.inside import stream
from runtime.record.events import Event


def arguments(**changed: object) -> SimpleNamespace:
    """A server's arguments, as far as they decide where its ranks are."""
    usual = {"tp_size": 1, "dp_size": 1, "pp_size": 1, "ep_size": 1, "nnodes": 1, "node_rank": 0}
    more = {"base_gpu_id": 0, "gpu_id_step": 1, "enable_dp_attention": False}
    return SimpleNamespace(**{**usual, **more, **changed})


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
