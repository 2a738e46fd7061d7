"""Memory that lies outside torch, which a ghost cannot know: it appears when and as a request says."""

from __future__ import annotations

import ctypes
from typing import Any


class Charges:
    """Bytes by moment: "context" before the first step, and each phase's own at its begin or end."""

    def __init__(self, given: dict[str, Any] | None) -> None:
        given = given or {}
        self._library = ctypes.CDLL(None) if given else None
        self._at_end: dict[str, int] = dict(given.get("phases", {}))
        self._charge(given.get("context", 0))

    def end(self, phase: str) -> None:
        self._charge(self._at_end.pop(phase, 0))

    def _charge(self, size: int) -> None:
        if size and self._library is not None:
            self._library.ghost_charge(0, ctypes.c_int64(size))
