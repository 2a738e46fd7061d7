"""The record of each allocation, and recordings of allocations and frees."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from runtime.simulate.blocks import Block
from runtime.simulate.frames import RUNTIME, Frame


@dataclass(slots=True, eq=False)
class Allocation:
    """One live storage or workspace: the op that made it, its shape, and the source line."""

    nbytes: int
    op: str
    shape: tuple[int, ...]
    dtype: str
    code: CodeType | None = None
    line: int = 0
    frames: tuple[Frame, ...] = ()
    sequence: int = 0
    phase: str = ""
    block: Block = field(init=False)

    def copy(self) -> Allocation:
        """Return a copy that is not placed yet."""
        where = self.code, self.line, self.frames
        return Allocation(self.nbytes, self.op, self.shape, self.dtype, *where)

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
class Loop:
    """Steps `start` to `end` of a recording, followed by `count` more rounds of the same steps."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Recording:
    """Allocations (True) and frees (False) in the order they happened."""

    steps: list[tuple[bool, Allocation]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
