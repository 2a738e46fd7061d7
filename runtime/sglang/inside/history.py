"""torch's history of this process's memory, written once, in the form that pytorch.org/memory_viz reads."""

_MOST_EVENTS = 1_000_000


class History:
    """Records from now on. Only the first `write` counts, because that moment is the one to show."""

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
