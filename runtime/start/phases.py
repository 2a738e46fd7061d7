"""Measure the time and memory of each phase of a start, and write them to disk as it happens.

A JSON line is synced when a phase begins and when it ends, so that a killed process leaves the phases it
completed and the name of the one it was in. The peak of a nested phase counts for its parents, too.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from runtime.devices.base import Device
from runtime.devices.memory_errors import out_of_memory
from runtime.devices.readings import Held, MemoryReading
from runtime.start.run_record import SCHEMA_VERSION, Failure, Phase, Run

LARGEST = 8


@dataclass(slots=True)
class _Open:
    name: str
    started: float
    before: MemoryReading
    peak_allocated: int = 0
    peak_reserved: int = 0
    largest: list[Held] = field(default_factory=list)

    def merge(self, peak_allocated: int, peak_reserved: int, largest: list[Held]) -> None:
        if peak_allocated > self.peak_allocated:
            self.peak_allocated, self.largest = peak_allocated, largest
        self.peak_reserved = max(self.peak_reserved, peak_reserved)


class PhaseRecorder:
    """Records phases, in the order they end, in `phases` and, if `out` is given, in a new file there."""

    def __init__(self, device: Device, out: Path | None = None, about: dict[str, Any] | None = None) -> None:
        self.device = device
        self.phases: list[Phase] = []
        self.failure: Failure | None = None
        self._failed_with: BaseException | None = None
        self._open: list[_Open] = []
        self._file: IO[str] | None = out.open("w", encoding="utf-8") if out else None
        self._about = {
            "schema_version": SCHEMA_VERSION,
            "device": device.torch_device.type,
            "total_bytes": device.memory().total,
            **(about or {}),
        }
        self._write({"event": "run", **self._about})

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._begin(name)
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise
        self._end()

    def tell(self, **facts: Any) -> None:
        """Add facts that the start has decided by now to the facts of the file's first line."""
        self._about |= facts
        self._write({"event": "facts", **facts})

    def run(self) -> Run:
        """Return everything recorded so far, equal to what a reader of the file would get."""
        return Run(dict(self._about), tuple(self.phases), self.failure, tuple(o.name for o in self._open))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, name: str) -> None:
        self._merge_into_parent(self.device.memory())
        self.device.reset_peak()
        before = self.device.memory()
        self._open.append(_Open(name, time.perf_counter(), before))
        self.device.in_phase(name)
        self._write({"event": "begin", "phase": name, "depth": len(self._open) - 1})

    def _end(self) -> None:
        after = self.device.memory()
        phase = self._close_phase(after)
        self.device.reset_peak()
        self.phases.append(phase)
        self._write({"event": "end", **asdict(phase)})

    def _close_phase(self, after: MemoryReading) -> Phase:
        depth = len(self._open) - 1
        opened = self._open.pop()
        self.device.in_phase(self._open[-1].name if self._open else "")
        opened.merge(after.peak_allocated, after.peak_reserved, self.device.largest_at_peak(LARGEST))
        if self._open:
            self._open[-1].merge(opened.peak_allocated, opened.peak_reserved, opened.largest)
        before = opened.before
        return Phase(
            name=opened.name,
            depth=depth,
            seconds=time.perf_counter() - opened.started,
            persistent_bytes=after.allocated - before.allocated,
            peak_bytes=opened.peak_allocated,
            transient_bytes=opened.peak_allocated - max(before.allocated, after.allocated),
            allocated_bytes=after.allocated,
            reserved_bytes=after.reserved,
            reserved_peak_bytes=opened.peak_reserved,
            free_at_peak_bytes=max(0, after.total - after.non_torch - opened.peak_reserved),
            non_torch_bytes=after.non_torch,
            largest=tuple(opened.largest),
        )

    def _merge_into_parent(self, reading: MemoryReading) -> None:
        if self._open:
            largest = self.device.largest_at_peak(LARGEST)
            self._open[-1].merge(reading.peak_allocated, reading.peak_reserved, largest)

    def _fail(self, error: BaseException) -> None:
        """Close the innermost open phase, and record the error as its failure unless an inner phase did."""
        failed = self._open[-1].name
        phase = self._close_phase(self._last_reading())
        if error is self._failed_with:
            return
        self._failed_with = error
        self.failure = Failure(failed, f"{type(error).__name__}: {error}", out_of_memory(error), phase)
        self._write({"event": "failed", **asdict(self.failure)})

    def _last_reading(self) -> MemoryReading:
        try:
            return self.device.memory()
        except RuntimeError:  # the error took the GPU's context with it: nothing more can be asked of it
            return self._open[-1].before

    def _write(self, record: dict[str, Any]) -> None:
        if self._file is None:
            return
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
