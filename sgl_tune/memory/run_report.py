"""From a run to its report. It may have been read from anybody's file, and be of a start that died."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.start.run_record import Run
from sgl_tune.errors import UsageError
from sgl_tune.memory.report import Constant, MemoryReport, Sizes
from sgl_tune.memory.run_file import read_run
from sgl_tune.records import WrongMember, from_plain

_LONGEST_NAME = 100
_COUNTED_MARGIN = 128 << 20
_DOUBT = 0.1


def read_report(path: Path) -> MemoryReport:
    try:
        run = read_run(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return report_of(run, str(path))


@dataclass(frozen=True, slots=True)
class _About:
    """What a run's records say of the whole start, beside its sizes."""

    device: str = ""
    total_bytes: int = 0
    gpu: str = "GPU"
    rank: int = 0
    rank_name: str = "TP0"
    title: str = ""
    subtitle: str = ""
    constants: tuple[Constant, ...] = ()


def report_of(run: Run, where: str) -> MemoryReport:
    """`where` names the run in errors."""
    try:
        about, sizes = from_plain(_About, run.about, where), from_plain(Sizes, run.about, where)
    except WrongMember as error:
        raise UsageError(str(error), "give the file that mem-report --out wrote") from error
    predicted = about.device == "meta"
    return MemoryReport(
        gpu=about.gpu[:_LONGEST_NAME],
        total_bytes=about.total_bytes,
        source="core" if predicted else "measured",
        run=run,
        rank=about.rank,
        rank_name=about.rank_name,
        sizes=sizes,
        constants=about.constants,
        margin_bytes=_margin(about.constants) if predicted else 0,
        title=about.title or where,
        subtitle=about.subtitle,
    )


def _margin(constants: tuple[Constant, ...]) -> int:
    """What was measured against predictions so far, and the doubt of what is only calibrated."""
    return _COUNTED_MARGIN + round(sum(_doubt(constant) for constant in constants))


def _doubt(constant: Constant) -> float:
    return _DOUBT * constant.bytes if constant.doubt is None else constant.doubt
