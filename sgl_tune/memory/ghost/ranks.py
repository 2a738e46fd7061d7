"""Which ranks of a server are started: those whose memory can differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.record.record import Record
from sgl_tune.errors import UsageError
from sgl_tune.units import shown

DISTINCT, ALL = "distinct", "all"
_MOST_STAGES = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """How SGLang itself resolved a server's ranks."""

    tp: int = 1
    pp: int = 1
    dp: int = 1

    @property
    def ranks(self) -> int:
        return self.tp * self.pp

    def name(self, rank: int) -> str:
        """As SGLang's log names it: `DP1 PP0 TP3`."""
        tp_rank, stage = rank % self.tp, rank // self.tp
        names = [f"DP{tp_rank // max(1, self.tp // self.dp)}"] if self.dp > 1 else []
        names += [f"PP{stage}"] if self.pp > 1 else []
        return " ".join([*names, f"TP{tp_rank}"])


def layout_of(record: Record) -> Layout:
    """One rank where the start did not come to resolved arguments."""
    given = record.arguments
    has_dp_attention = given.get("enable_dp_attention") is True
    return Layout(_size(given, "tp_size"), _size(given, "pp_size"), _size(given, "dp_size", has_dp_attention))


def _size(given: Mapping[str, Any], name: str, counts: bool = True) -> int:
    size = given.get(name)
    return size if counts and isinstance(size, int) and size > 0 else 1


def first_rank(asked: str) -> int:
    """The rank to start first; its record says which others there are."""
    if asked in (DISTINCT, ALL):
        return 0
    if not (asked.isascii() and asked.isdecimal()) or len(asked) > 6:
        raise UsageError(f"--ranks {shown(asked)} is no rank", "write distinct, all or one number")
    return int(asked)


def other_ranks(asked: str, layout: Layout) -> tuple[int, ...]:
    """Those to start beside the first.

    The ranks of a stage hold as much as each other: SGLang shares heads, experts and the vocabulary out
    evenly, or refuses. Stages differ by their layers, the first has the embedding and the last the head.
    """
    if asked == ALL:
        return tuple(range(1, layout.ranks))
    if asked != DISTINCT or layout.pp == 1:
        return ()
    stages = set(range(1, layout.pp))
    if layout.pp > _MOST_STAGES:
        stages = {1, layout.pp // 2, layout.pp - 1}
    return tuple(stage * layout.tp for stage in sorted(stages))
