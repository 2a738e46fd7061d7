"""Memory outside torch. A ghost cannot measure it, so each request brings the numbers."""

import ctypes
from typing import Any

from runtime.ghost.inside.stream import say

# What the C libraries count: bytes that they charged, bytes of code, and first uses.
COUNTED = (
    *("charged", "code", "graphs", "nodes", "branches", "messages", "message_graphs", "modules"),
    *(f"communicators_{ranks}" for ranks in range(1, 9)),
)
_PEAK = 7  # of ghost_stats


class Charges:
    """Passes the numbers, as the text of a table, to the C libraries, which charge them at each first use."""

    def __init__(self, given: dict[str, Any] | None) -> None:
        given = given or {}
        self._numbers = str(given.get("numbers", ""))
        self._library = ctypes.CDLL(None) if given else None
        if self._library is not None:
            self._library.ghost_outside(self._numbers.encode())

    def by_ranks(self, name: str) -> dict[int, int]:
        """Return numbers by ranks, which the C libraries do not read: `peers_4=50331648` is for 4."""
        pairs = (pair.partition("=") for pair in self._numbers.split(";"))
        return {int(key[len(name) :]): int(value) for key, _, value in pairs if key.startswith(name)}

    def begin(self, phase: str) -> None:
        """Charge the libraries that the driver loads whole when the weights' phase begins."""
        if self._library is not None and phase == "weights":
            self._library.ghost_appears(self._device(), b"libraries", 0)

    def least_free(self, free: int, total: int) -> int:
        """Return the least free memory since the last call on the ghost, and the present one on a GPU."""
        if self._library is None:
            return free
        stats = (ctypes.c_uint64 * 8)()
        self._library.ghost_stats(stats)
        self._library.ghost_reset_peak(self._device())
        return total - int(stats[_PEAK])

    def tell(self, phase: str) -> None:
        """Report the bytes counted so far, at the end of a phase or when the start died in it."""
        if self._library is None:
            return
        counted = (ctypes.c_uint64 * len(COUNTED))()
        self._library.ghost_counted(counted)
        say("outside", phase=phase, **dict(zip(COUNTED, counted, strict=True)))

    def _device(self) -> int:
        import torch

        return int(torch.cuda.current_device())
