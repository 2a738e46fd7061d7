"""What a search reports while it runs, and the result of each bucket."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Stage = Literal["screen", "play_off", "decided"]


@dataclass(frozen=True, slots=True)
class Progress:
    """A bucket's state after each step on this worker. Times are milliseconds, infinite if not known."""

    op: str
    bucket: int
    stage: Stage
    tactics: int
    left: int
    best_ms: float
    default_ms: float


@dataclass(frozen=True, slots=True)
class BucketResult:
    """The result of a bucket, the same on every worker. `tactic` is None if every tactic failed.

    Times are those of the kernel alone. `runner_up` is the share by which the second candidate was slower in
    the final, in the layer if there is one; None if the final had one candidate. `race` has that share for
    each candidate of the final, by runner and tactic as an entry holds them.
    """

    op: str
    runner: str
    bucket: int
    file_key: str
    tactic: Any
    best_ms: float
    default_ms: float
    runner_up: float | None
    tactics: int
    finalists: int
    launches: int
    failed: Mapping[str, str] = field(default_factory=dict)  # tactic -> reason
    race: Mapping[str, float] = field(default_factory=dict)


Watch = Callable[[Progress], None]


def unwatched(progress: Progress) -> None:
    pass
