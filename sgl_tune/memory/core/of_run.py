"""The report of a run of the core: predicted, measured, or read from anybody's file of a start that died."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.record.checked import WrongMember, from_plain
from runtime.start.run_record import Run
from sgl_tune.errors import UsageError
from sgl_tune.memory.core.run_file import read_run
from sgl_tune.memory.parts import NCCL, Owned, Share
from sgl_tune.memory.phases import rooted
from sgl_tune.memory.report import Constant, MemoryReport, Sizes, Whose

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
    """What a run's lines say of the whole start, beside its sizes."""

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
    """`where` names the run in errors."""
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
    """How far predictions were off so far, and the doubt of what is only calibrated."""
    doubts = (_DOUBT * of.bytes if of.doubt is None else of.doubt for of in constants)
    return _COUNTED_MARGIN + round(sum(doubts))
