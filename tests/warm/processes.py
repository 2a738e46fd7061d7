"""Processes as the system sees them: who is whose child, who still runs."""

import time
from collections.abc import Callable
from pathlib import Path


def runs(pid: int) -> bool:
    state = _state(pid)
    return state is not None and state[0] not in "ZX"


def children_of(pid: int) -> list[int]:
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        state = _state(int(place.name))
        if state is not None and state[1] == pid:
            found.append(int(place.name))
    return found


def tree_of(pid: int) -> list[int]:
    return [pid, *(each for child in children_of(pid) for each in tree_of(child))]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def until(come: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not come():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.01)


def _state(pid: int) -> tuple[str, int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1])
