"""What one rank said of its memory while it started, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.devices.readings import OutOfMemory
from sgl_tune.server_log.ends import End


@dataclass(frozen=True, slots=True)
class Step:
    """A step that ended: its name is the report's phase. `before_bytes` were free when it began."""

    phase: str
    free_bytes: int | None = None
    used_bytes: int | None = None
    seconds: float | None = None
    before_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Capture:
    """How far a capture came: the shape that it had in hand, and what was free then."""

    shape: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class RankLog:
    """`source` is the pod or the container, "" where the log is of one. `phase` is where its log ends."""

    source: str = ""
    rank: str = ""
    phase: str = "setup"
    baseline_bytes: int | None = None
    entered_bytes: int | None = None  # free when `phase` began
    steps: tuple[Step, ...] = ()
    capture: Capture | None = None
    kv_tokens: int | None = None
    kv_bytes: int | None = None
    pool_comes_last: bool = False  # it was sized by what the captures left
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return " of ".join(filter(None, (self.rank, self.source))) or "the server"

    @property
    def phase_now(self) -> str:
        return self.steps[-1].phase if self.steps else ""

    @property
    def least_free_bytes(self) -> int | None:
        return min((step.free_bytes for step in self.steps if step.free_bytes is not None), default=None)

    def step(self, phase: str) -> Step | None:
        return next((step for step in self.steps if step.phase == phase), None)

    def free_after(self, phase: str) -> int | None:
        step = self.step(phase)
        return step.free_bytes if step else None


@dataclass(frozen=True, slots=True)
class LoggedOom:
    """`numbers` is None where the log has only `CUDA error: out of memory`, from a kernel.

    `frames` are file and function, the innermost last; `others_bytes` what other processes held, where torch
    told this process's share.
    """

    phase: str
    rank: str
    where: str
    message: str
    numbers: OutOfMemory | None
    source: str = ""
    frames: tuple[tuple[str, str], ...] = ()
    others_bytes: int | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """`what` in few words, the numbers that show it, and the way out."""

    what: str
    shown_by: str
    way_out: str

    def line(self) -> str:
        return f"cause: {self.what}: {self.shown_by}; {self.way_out}"


@dataclass(frozen=True, slots=True)
class ServerLog:
    """`lead` is the rank that died, else the one with the least left.

    `refusal` is what SGLang said where it ended the start itself, at the line `refused_at`. `end` is any
    other death. `others` are the sources of other servers. `starts`: how many the log holds, this the last.
    """

    lead: RankLog
    ranks: tuple[RankLog, ...] = ()
    oom: LoggedOom | None = None
    refusal: str = ""
    refused_at: int = 0
    end: End | None = None
    is_ready: bool = False
    starts: int = 1
    server_args: str | None = None
    others: tuple[str, ...] = ()
    path: Path = field(default=Path("-"), compare=False)

    @property
    def ended_by_memory(self) -> bool:
        return self.oom is not None or bool(self.refusal)

    @property
    def ended(self) -> bool:
        """It died: of memory, by its own check, or otherwise."""
        return self.ended_by_memory or self.end is not None
