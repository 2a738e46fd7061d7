"""The cage seen from outside: protections that a machine lacks, and the end of starts that use too much."""

import os
import signal
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.5
_SHARE = 0.9
_IDLE_SECONDS = 120
_PAGE, _TICKS = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")

# What a machine may lack, by the first words of the protections that `ghost.inside.cage.enter` reports.
_MEANS = {
    "network": "no network namespace can be made (unshare is not allowed here)",
    "files": "the kernel has no Landlock",
    "devices": "the kernel's Landlock is older than 6.10: devices are kept by their files' rights alone",
    "signals": "the kernel's Landlock is older than 6.12",
    "system calls": "no seccomp filter can be set",
}


def lacking(holds: Iterable[str]) -> tuple[str, ...]:
    """Return the protections that this machine's kernel does not offer, each with the reason."""
    held = tuple(holds)
    return tuple(
        f"{name}: {why}" for name, why in _MEANS.items() if not any(one.startswith(name) for one in held)
    )


def kill_group(leader: int) -> None:
    """Kill all processes of a start. They cannot leave its group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


@dataclass(frozen=True)
class Used:
    """Memory of a group's processes, in which forks have a share of common bytes, and their CPU seconds."""

    memory: int = 0
    cpu: float = 0.0


def used_by_group(leader: int) -> Used:
    memory = ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == leader:
                resident, shared = (process / "statm").read_text().split()[1:3]
                memory += (int(resident) - int(shared)) * _PAGE
                ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
        except (OSError, ValueError):
            continue
    return Used(memory, ticks / _TICKS)


def most_memory() -> int:
    """Return the bytes that a start may use: a share of the memory that is available now."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(int(line.split()[1]) * 1024 * _SHARE)
    return os.sysconf("SC_PHYS_PAGES") * _PAGE // 2


class Keeper:
    """Kills a start's processes if they use too much CPU, none for too long, or too much memory. `why` is the
    reason; it is empty if the start ended by itself."""

    def __init__(self, leader: int, seconds: float, most: int, idle: float = _IDLE_SECONDS) -> None:
        self._leader, self._seconds, self._most, self._idle = leader, seconds, most, idle
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self.why = ""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        worked = idle = 0.0
        while not self._ended.wait(_LOOK_SECONDS):
            used, idle = used_by_group(self._leader), idle + _LOOK_SECONDS  # a paused machine is not idle
            if used.cpu > worked + 1:
                worked, idle = used.cpu, 0.0
            if used.cpu > self._seconds:
                self.why = f"the start took more than {self._seconds:.0f} s of CPU"
            elif idle > self._idle:
                self.why = f"the start did nothing for {self._idle:.0f} s"
            elif used.memory > self._most:
                gib = f"{used.memory / 2**30:.1f} GiB of this machine's memory, and {self._most / 2**30:.1f}"
                self.why = f"the start took {gib} were to be had"
            if self.why:
                kill_group(self._leader)
                return
