"""What the tracker keeps of each allocation, and a recording of allocations and frees."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from runtime.simulate.blocks import Block
from runtime.simulate.frames import RUNTIME, Frame


class Allocation:
    """One live storage or workspace: what made it, with which shape, from which line of the runtime."""

    __slots__ = (
        *("block", "code", "dtype", "frames", "line", "nbytes", "op", "phase", "sequence", "shape"),
        "is_outside_graph",
    )

    block: Block

    def __init__(self, nbytes: int, op: str, shape: tuple[int, ...], dtype: str) -> None:
        self.nbytes = nbytes
        self.op = op
        self.shape = shape
        self.dtype = dtype
        self.sequence = 0
        self.phase = ""
        self.code: CodeType | None = None
        self.line = 0
        self.frames: tuple[Frame, ...] = ()
        self.is_outside_graph = False

    def copy(self) -> Allocation:
        """The same thing allocated once more: not yet placed."""
        other = Allocation(self.nbytes, self.op, self.shape, self.dtype)
        other.code, other.line, other.frames = self.code, self.line, self.frames
        other.is_outside_graph = self.is_outside_graph
        return other

    @property
    def what(self) -> str:
        return f"{self.op} [{', '.join(map(str, self.shape))}] {self.dtype}"

    @property
    def where(self) -> str:
        if self.code is None:
            return ""
        file = self.code.co_filename.removeprefix(RUNTIME)
        return f"{file}:{self.line} {self.code.co_name}"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One allocation as tests and comparisons want it."""

    phase: str
    nbytes: int
    op: str
    shape: tuple[int, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps `start` to `end` of a recording stand for themselves and for `count` more rounds of the same."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Recording:
    """Allocations (True) and frees (False) in the order they happened."""

    steps: list[tuple[bool, Allocation]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
