"""A start as data: its phases, what failed, and the file they are streamed to. No torch needed to read it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from runtime.devices.readings import Held, OutOfMemory

SCHEMA_VERSION = 1
_KINDS: dict[str, Any] = {"int": int, "float": (int, float), "str": str}
_MOST = 1 << 60
_DEEPEST = 64


class RunFileError(ValueError):
    """A file that is not a run, with the line that shows it."""


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


def read_run(path: Path) -> Run:
    return parse_run(path.read_bytes(), str(path))


def parse_run(raw: bytes, path: str) -> Run:
    """The run of a streamed file. A last line that a kill cut short is dropped, other damage an error."""
    lines = raw.splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record(line))
        except (ValueError, RecursionError) as error:
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
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
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
            unfinished.append(_of_kind("str", "phase", record["phase"]))
        elif event == "end":
            phases.append(_phase(record))
            unfinished.remove(record["name"])
        elif event == "failed":
            numbers = record["out_of_memory"]
            oom = OutOfMemory(**_members(OutOfMemory, {"where": "", **numbers})) if numbers else None
            phase, error = (_of_kind("str", name, record[name]) for name in ("phase", "error"))
            failure = Failure(phase, error, oom, _phase(record["at_failure"]))
            unfinished.clear()
    return Run(about, tuple(phases), failure, tuple(unfinished))


def _phase(record: Mapping[str, Any]) -> Phase:
    values = _members(Phase, record)
    largest = tuple(Held(**_members(Held, held)) for held in record["largest"])
    if not 0 <= values["depth"] <= _DEEPEST:
        raise ValueError(f"depth is {values['depth']}")
    return Phase(**values, largest=largest)


def _members(kind: Any, record: Mapping[str, Any]) -> dict[str, Any]:
    """All but lists, each of its field's type."""
    return {
        f.name: _of_kind(str(f.type), f.name, record[f.name])  # annotations are text here
        for f in fields(kind)
        if f.type in _KINDS
    }


def _of_kind(kind: str, name: str, value: Any) -> Any:
    fits = isinstance(value, _KINDS[kind]) and not isinstance(value, bool)
    if not fits or (kind != "str" and not abs(value) <= _MOST):  # nor is NaN
        raise ValueError(f"{name} is no {kind}, or too large")
    return value
