"""The cage from outside: what does not hold on this machine, and the end of a start that takes too much."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path

_LOOK_SECONDS = 0.5
_SHARE = 0.9
_PAGE = os.sysconf("SC_PAGE_SIZE")

# What a machine may lack, by the first words of what `runtime.ghost.inside.cage.enter` says that holds.
_MEANS = {
    "network": "no network namespace can be made (unshare is not allowed here)",
    "files": "the kernel has no Landlock",
    "devices": "the kernel's Landlock is older than 6.10: devices are kept by their files' rights alone",
    "signals": "the kernel's Landlock is older than 6.12",
    "system calls": "no seccomp filter can be set",
}


def lacking(holds: Iterable[str]) -> tuple[str, ...]:
    """What the kernel of this machine does not keep a start from, each with the reason."""
    held = tuple(holds)
    return tuple(
        f"{name}: {why}" for name, why in _MEANS.items() if not any(one.startswith(name) for one in held)
    )


def kill_group(leader: int) -> None:
    """Kill all processes of a start: none of them can leave its group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def memory_of_group(leader: int) -> int:
    """Bytes of this machine's memory that a group's processes hold; what forks share counts in each."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == leader:
                resident, shared = (process / "statm").read_text().split()[1:3]
                total += (int(resident) - int(shared)) * _PAGE
        except (OSError, ValueError):
            continue
    return total


def most_memory() -> int:
    """What a start may take of the memory that is available now."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(int(line.split()[1]) * 1024 * _SHARE)
    return os.sysconf("SC_PHYS_PAGES") * _PAGE // 2


class Keeper:
    """Kills a start's processes after some seconds, or when they take more memory than they may.

    `why` says which it was; it is empty where the start ended by itself.
    """

    def __init__(self, leader: int, seconds: float, most: int) -> None:
        self._leader, self._seconds, self._most = leader, seconds, most
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self.why = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        deadline = time.monotonic() + self._seconds
        while not self._ended.wait(_LOOK_SECONDS):
            if time.monotonic() > deadline:
                self.why = f"the start took longer than {self._seconds:.0f} s"
            elif (taken := memory_of_group(self._leader)) > self._most:
                gib = f"{taken / 2**30:.1f} GiB of this machine's memory, and {self._most / 2**30:.1f}"
                self.why = f"the start took {gib} were to be had"
            if self.why:
                kill_group(self._leader)
                return
