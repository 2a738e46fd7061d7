"""torch's own history of this process's memory: written once, as pytorch.org/memory_viz reads it."""

from __future__ import annotations

_MOST_EVENTS = 1_000_000


class History:
    """Records from now on. A second `write` changes nothing: the first moment is the one that is shown."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        if path is not None:
            import torch

            torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS, stacks="python")

    def write(self) -> None:
        if self._path is not None:
            import torch

            path, self._path = self._path, None
            torch.cuda.memory._dump_snapshot(path)
