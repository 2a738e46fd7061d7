"""A start as data: its phases, what failed, and the file they are streamed to. No torch needed to read it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from runtime.server.units import GIB, KIB, MIB

SCHEMA_VERSION = 1
_UNITS = {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
_SIZE = r"(\d{1,9}(?:\.\d+)?) (bytes|KiB|MiB|GiB)"


class RunFileError(ValueError):
    """A file that is not a run, with the line that shows it."""


@dataclass(frozen=True, slots=True)
class Held:
    """One of the largest allocations at a peak."""

    bytes: int
    what: str
    where: str


@dataclass(frozen=True, slots=True)
class Phase:
    """Bytes. `peak` is what torch had allocated at most; `transient` the part of it gone at the end."""

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
class OutOfMemory:
    """The numbers of torch's message: exact when predicted, as printed when measured."""

    tried_bytes: int
    free_bytes: int
    total_bytes: int
    allocated_bytes: int
    reserved_unallocated_bytes: int
    where: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    phase: str
    error: str
    out_of_memory: OutOfMemory | None
    at_failure: Phase


@dataclass(frozen=True, slots=True)
class Run:
    """`unfinished` are phases begun and neither ended nor failed, outermost first: the process was killed."""

    about: Mapping[str, Any]
    phases: tuple[Phase, ...]
    failure: Failure | None
    unfinished: tuple[str, ...]

    @property
    def failed_in(self) -> str | None:
        if self.failure:
            return self.failure.phase
        return self.unfinished[-1] if self.unfinished else None


def parse_out_of_memory(message: str, where: str = "") -> OutOfMemory | None:
    """torch's "CUDA out of memory. Tried to allocate ..." as numbers."""
    patterns = {
        "tried_bytes": rf"Tried to allocate {_SIZE}",
        "total_bytes": rf"total capacity of {_SIZE}",
        "free_bytes": rf"of which {_SIZE} is free",
        "allocated_bytes": rf"allocated memory {_SIZE} is allocated by PyTorch",
        "reserved_unallocated_bytes": rf"{_SIZE} is reserved by PyTorch but unallocated",
    }
    found = {name: re.search(pattern, message) for name, pattern in patterns.items()}
    if found["tried_bytes"] is None:
        return None
    return OutOfMemory(
        **{name: round(float(m[1]) * _UNITS[m[2]]) if m else 0 for name, m in found.items()}, where=where
    )


def read_run(path: Path) -> Run:
    """The run of a streamed file. A last line that a kill cut short is dropped, other damage an error."""
    lines = path.read_bytes().splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record(line))
        except ValueError as error:
            if number == len(lines) and number > 1:
                break
            raise RunFileError(f"{path}: line {number} is no record of a run: {error}") from None
    if not records or records[0]["event"] != "run":
        raise RunFileError(f"{path} is no run: its first line does not say what was run")
    if records[0].get("schema_version") != SCHEMA_VERSION:
        raise RunFileError(
            f"{path} has schema_version {records[0].get('schema_version')!r}, and this release reads "
            f"{SCHEMA_VERSION}: read it with the release that wrote it"
        )
    try:
        return _run(records)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunFileError(f"{path} lacks or misplaces a member: {error}") from None


def _record(line: bytes) -> dict[str, Any]:
    record = json.loads(line.decode("utf-8"))
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        raise ValueError("not an object with an event")
    return record


def _run(records: Iterable[dict[str, Any]]) -> Run:
    about: dict[str, Any] = {}
    phases: list[Phase] = []
    failure: Failure | None = None
    unfinished: list[str] = []
    for record in records:
        event = record["event"]
        if event in ("run", "facts"):
            about |= {name: value for name, value in record.items() if name != "event"}
        elif event == "begin":
            unfinished.append(record["phase"])
        elif event == "end":
            phases.append(_phase(record))
            unfinished.remove(record["name"])
        elif event == "failed":
            numbers = record["out_of_memory"]
            oom = OutOfMemory(**numbers) if numbers else None
            failure = Failure(record["phase"], record["error"], oom, _phase(record["at_failure"]))
            unfinished.clear()
    return Run(about, tuple(phases), failure, tuple(unfinished))


def _phase(record: Mapping[str, Any]) -> Phase:
    values = {f.name: record[f.name] for f in fields(Phase) if f.name != "largest"}
    return Phase(**values, largest=tuple(Held(**held) for held in record["largest"]))
