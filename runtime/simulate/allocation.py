"""What the tracker keeps of each allocation, and a recording of allocations and frees."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from runtime.simulate.blocks import Block
from runtime.simulate.frames import RUNTIME, Frame


@dataclass(slots=True, eq=False)
class Allocation:
    """One live storage or workspace: what made it, with which shape, from which line of the runtime."""

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
        """The same thing allocated once more: not yet placed."""
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
    """Steps `start` to `end` of a recording stand for themselves and for `count` more rounds of the same."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Recording:
    """Allocations (True) and frees (False) in the order they happened."""

    steps: list[tuple[bool, Allocation]] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
