"""Which autotune entries a deployment's server will ask for, while tuning at its start and while serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sgl_tune.deployment import Deployment

AskedBy = Literal["tuning", "serving"]
Policy = tuple[str, int | None, str, str]

HOT: Policy = ("cuda_graph_profile_replays", None, "l2_cache_policy", "hot")
COLD: Policy = ("cuda_graph_profile_replays", 1, "l2_cache_policy", "cold")


@dataclass(frozen=True, slots=True)
class ExpectedEntry:
    """One lookup. `tuning`: the server's own autotune makes it; `serving`: only its requests do."""

    key: str
    bucket: int
    asked_by: AskedBy


@dataclass(frozen=True, slots=True)
class TunedOp:
    op: str
    runner: str
    policy: Policy
    entries: tuple[ExpectedEntry, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(entry.key for entry in self.entries)

    @property
    def buckets(self) -> tuple[int, ...]:
        return tuple(sorted({entry.bucket for entry in self.entries}))


def expected_keys(deployment: Deployment) -> tuple[TunedOp, ...]:
    return ()
