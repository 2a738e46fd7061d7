"""What a server's log says beside its prediction, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sgl_tune.server_log.rank_log import Cause

_ALIKE = 128 << 20


@dataclass(frozen=True, slots=True)
class LoggedRank:
    """`gap`: by cause, how many bytes more than predicted; None of another server's rank."""

    source: str
    rank: str
    ends_in: str
    baseline_bytes: int | None
    pool_free_bytes: int | None
    least_free_bytes: int | None
    gap: dict[str, int] | None

    @property
    def name(self) -> str:
        return " of ".join(filter(None, (self.rank, self.source))) or "the server"

    def is_like(self, other: LoggedRank) -> bool:
        if (self.source, self.ends_in) != (other.source, other.ends_in):
            return False
        return all(
            a == b if a is None or b is None else abs(a - b) <= _ALIKE
            for a, b in zip(self._amounts(), other._amounts(), strict=True)
        )

    def _amounts(self) -> tuple[int | None, ...]:
        return self.baseline_bytes, self.pool_free_bytes, self.least_free_bytes


@dataclass(frozen=True, slots=True)
class Logged:
    cause: Cause | None
    missing: tuple[str, ...]
    ranks: tuple[LoggedRank, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def groups(self) -> Iterator[tuple[LoggedRank, int]]:
        """Neighbours that are alike are told once, with how many more there are."""
        first, more = None, 0
        for rank in self.ranks:
            if first is not None and rank.is_like(first):
                more += 1
                continue
            if first is not None:
                yield first, more
            first, more = rank, 0
        if first is not None:
            yield first, more
