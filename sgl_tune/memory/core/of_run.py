"""Make the report of a run of the core: predicted, measured, or read from the file of a start that died."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.record.checked import WrongMember, from_plain
from runtime.start.run_record import SCHEMA_VERSION, Failure, Phase, Run
from sgl_tune.errors import UsageError
from sgl_tune.memory.parts import NCCL, Owned, Share, rooted
from sgl_tune.memory.report import Constant, MemoryReport, Sizes, Whose
from sgl_tune.reading import bounded_bytes

_LONGEST_NAME = 100
_COUNTED_MARGIN = 128 << 20
_DOUBT = 0.1
_REMEDY = "give the file that mem-report --out wrote"
_LARGEST = 16 << 20


def read_report(path: Path) -> MemoryReport:
    try:
        run = read_run(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return report_of(run, str(path))


@dataclass(frozen=True, slots=True)
class _About:
    """What a run's file says about the whole start, beside its sizes."""

    device: str = ""
    total_bytes: int = 0
    gpu: str = "GPU"
    rank: int = 0
    rank_name: str = "TP0"
    title: str = ""
    subtitle: str = ""
    constants: tuple[Constant, ...] = ()
    weights: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def report_of(run: Run, where: str) -> MemoryReport:
    """Return the report of a run. `where`: the run's name in errors."""
    try:
        about, sizes = from_plain(_About, run.about, where), from_plain(Sizes, run.about, where)
    except WrongMember as error:
        raise UsageError(str(error), "give the file that mem-report --out wrote") from error
    is_predicted = about.device == "meta"
    nccl = sum(of.bytes for of in about.constants if of.name.partition(":")[0] == "nccl")
    return MemoryReport(
        whose=Whose(
            gpu=about.gpu[:_LONGEST_NAME],
            source="core" if is_predicted else "measured",
            title=about.title or where,
            subtitle=about.subtitle,
            rank=about.rank,
            rank_name=about.rank_name,
        ),
        total_bytes=about.total_bytes,
        run=rooted(run),
        sizes=sizes,
        margin_bytes=_margin(about.constants) if is_predicted else 0,
        owned=Owned(about.weights, (Share(NCCL, nccl),)),
        constants=about.constants,
    )


def _margin(constants: tuple[Constant, ...]) -> int:
    """Return the error bar: the errors of predictions so far, plus the doubt about each calibrated number."""
    doubts = (_DOUBT * of.bytes if of.doubt is None else of.doubt for of in constants)
    return _COUNTED_MARGIN + round(sum(doubts))


def read_run(path: Path) -> Run:
    """Read a run's file. A last line that was cut short is dropped; other damage is an error."""
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
