"""The record of each allocation."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from runtime.simulate.blocks import Block
from runtime.simulate.frames import RUNTIME


@dataclass(slots=True, eq=False)
class Allocation:
    """One live storage or workspace: the op that made it, its shape, and the source line."""

    nbytes: int
    op: str
    shape: tuple[int, ...]
    dtype: str
    code: CodeType | None = None
    line: int = 0
    sequence: int = 0
    phase: str = ""
    block: Block = field(init=False)

    def copy(self) -> Allocation:
        """Return a copy that is not placed yet."""
        return Allocation(self.nbytes, self.op, self.shape, self.dtype, self.code, self.line)

    @property
    def what(self) -> str:
        return f"{self.op} [{', '.join(map(str, self.shape))}] {self.dtype}"

    @property
    def where(self) -> str:
        if self.code is None:
            return ""
        file = self.code.co_filename.removeprefix(RUNTIME)
        return f"{file}:{self.line} {self.code.co_name}"


Step = tuple[bool, Allocation]  # an allocation (True) or a free (False)
