"""The file that a start is streamed to, read back. It may be anybody's, and of a start that was killed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runtime.record.checked import from_plain
from runtime.start.run_record import SCHEMA_VERSION, Failure, Phase, Run
from sgl_tune.errors import UsageError
from sgl_tune.reading import bounded_bytes

_REMEDY = "give the file that mem-report --out wrote"
_LARGEST = 16 << 20


def read_run(path: Path) -> Run:
    """A last line that a kill cut short is dropped, other damage is an error."""
    lines = bounded_bytes(path, _LARGEST).splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(_record(line))
        except (ValueError, RecursionError) as error:
            if number == len(lines) and number > 1:
                break
            raise UsageError(f"{path}: line {number} is no record of a run: {error}", _REMEDY) from None
    if not records or records[0]["event"] != "run":
        raise UsageError(f"{path} is no run: its first line does not say what was run", _REMEDY)
    written_by = records[0].get("schema_version")
    if written_by != SCHEMA_VERSION:
        raise UsageError(
            f"{path} has schema_version {written_by!r}, and this release reads {SCHEMA_VERSION}",
            "read it with the release that wrote it",
        )
    try:
        return _run(records)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} lacks or misplaces a member: {error}", _REMEDY) from None


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
            unfinished.append(_text(record["phase"]))
        elif event == "end":
            phases.append(from_plain(Phase, record, "phase"))
            unfinished.remove(phases[-1].name)
        elif event == "failed":
            failure = from_plain(Failure, record, "failure")
            unfinished.clear()
    return Run(about, tuple(phases), failure, tuple(unfinished))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a phase is called {value!r}")
    return value
