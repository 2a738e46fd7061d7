"""A start as data: its phases and its failure. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.devices.readings import Held, OutOfMemory

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase, in bytes. `peak_bytes` is torch's; `transient_bytes` is the part that was freed by the end."""

    name: str
    depth: int
    seconds: float
    persistent_bytes: int
    peak_bytes: int
    transient_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    reserved_peak_bytes: int
    free_at_peak_bytes: int
    non_torch_bytes: int
    largest: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    phase: str
    error: str
    out_of_memory: OutOfMemory | None
    at_failure: Phase


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded start. `unfinished` are the phases open when the process was killed, outermost first."""

    about: Mapping[str, Any]
    phases: tuple[Phase, ...]
    failure: Failure | None
    unfinished: tuple[str, ...]

    @property
    def failed_in(self) -> str | None:
        if self.failure:
            return self.failure.phase
        return self.unfinished[-1] if self.unfinished else None
