"""Which ranks of a server are started, those whose memory can differ, and the result of starting it: SGLang
on the ghost, or the core."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.record.record import Record
from runtime.server.parallel import ParallelConfig
from runtime.sglang.releases import Release
from sgl_tune.errors import UsageError
from sgl_tune.memory.change import Change
from sgl_tune.memory.report import MemoryReport, worst
from sgl_tune.units import shown

DISTINCT, ALL = "distinct", "all"
_MOST_STAGES = 4
_WRITE = "write distinct, all or one number"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a server's ranks share the work. `dp`: the number of DP attention groups."""

    tp: int = 1
    pp: int = 1
    dp: int = 1

    @property
    def ranks(self) -> int:
        return self.tp * self.pp

    def name(self, rank: int) -> str:
        """Return the rank's name as in SGLang's log: `DP1 PP0 TP3`."""
        tp_rank, stage = rank % self.tp, rank // self.tp
        names = [f"DP{tp_rank // max(1, self.tp // self.dp)}"] if self.dp > 1 else []
        names += [f"PP{stage}"] if self.pp > 1 else []
        return " ".join([*names, f"TP{tp_rank}"])

    def started(self, asked: str) -> tuple[int, ...]:
        """Return the ranks to start. The ranks of a stage hold equal memory, because SGLang divides heads,
        experts and the vocabulary evenly or refuses. Stages differ by their layers; the first has the
        embedding and the last has the head."""
        first = first_rank(asked)
        if first >= self.ranks:
            raise UsageError(f"--ranks {shown(asked)}: this server has ranks 0 to {self.ranks - 1}", _WRITE)
        if asked == ALL:
            return tuple(range(self.ranks))
        if asked != DISTINCT or self.pp == 1:
            return (first,)
        stages = {1, self.pp // 2, self.pp - 1} if self.pp > _MOST_STAGES else set(range(1, self.pp))
        return (0, *(stage * self.tp for stage in sorted(stages)))


def layout_of(record: Record) -> Layout:
    """Return the layout that SGLang resolved, or one rank if the start ended before that."""
    given = record.arguments
    has_dp_attention = given.get("enable_dp_attention") is True
    return Layout(_size(given, "tp_size"), _size(given, "pp_size"), _size(given, "dp_size", has_dp_attention))


def layout_for(parallel: ParallelConfig) -> Layout:
    return Layout(parallel.tp, parallel.pp, parallel.attn_dp)


def _size(given: Mapping[str, Any], name: str, counts: bool = True) -> int:
    size = given.get(name)
    return size if counts and isinstance(size, int) and size > 0 else 1


def first_rank(asked: str) -> int:
    """Return the rank to start first; its record says how many ranks the server has."""
    if asked in (DISTINCT, ALL):
        return 0
    if not (asked.isascii() and asked.isdecimal()) or len(asked) > 6:
        raise UsageError(f"--ranks {shown(asked)} is no rank", _WRITE)
    return int(asked)


@dataclass(frozen=True, slots=True)
class Started:
    """The result of starting a server. `reports`: one per started rank. `graphs`: the largest batch of a
    decode graph. `seconds`: CPU seconds. `record`: the record of the leading rank, if SGLang itself was
    started."""

    reports: tuple[MemoryReport, ...]
    layout: Layout
    graphs: int | None = None
    seconds: float = 0.0
    record: Record | None = None

    @property
    def report(self) -> MemoryReport:
        """Return the leading rank's report: it ran out of memory, or has the least free memory."""
        return worst(self.reports)


class Starter(Protocol):
    """Starts one server several times. `least`: stop a start when a phase leaves fewer free bytes."""

    @property
    def release(self) -> Release: ...
    def start(self, change: Change, least: int | None = None) -> Started: ...
    def check(self, change: Change) -> None:
        """Raise UsageError for a change that this server cannot have, before anything is started."""

    def command(self, change: Change) -> str:
        """Return the user's own server command with this change."""


# For a search: start with a change, until a phase leaves fewer free bytes than given.
Start = Callable[[Change, int | None], Started]
