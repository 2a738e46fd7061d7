"""A matrix under a format: tensors by name, with shapes that follow from the matrix. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from runtime.server.errors import ConfigError

Of = Literal["rows", "columns", "parts", "experts"]
MODEL = "model"  # the dtype that the model runs in


@dataclass(frozen=True, slots=True)
class Padding:
    """To multiples of these, of experts' sizes on a rank."""

    inner: int = 1
    hidden: int = 1


@dataclass(frozen=True, slots=True)
class Matrix:
    """What one rank has of a layer's [rows, columns]; `rows` of each of the checkpoint's matrices in it."""

    rows: tuple[int, ...]
    columns: int
    all_columns: int  # of all ranks
    cuts_rows: bool
    experts: int = 0  # of this rank; 0: of none
    is_down: bool = False  # of experts: back from the inner size

    @property
    def cuts_columns(self) -> bool:
        return self.columns != self.all_columns

    def padded(self, by: Padding) -> Matrix:
        """Each half of gate and up by itself."""
        rows, columns = (by.hidden, by.inner) if self.is_down else (by.inner, by.hidden)
        return replace(
            self, rows=tuple(_up(row, rows) for row in self.rows), columns=_up(self.columns, columns)
        )


@dataclass(frozen=True, slots=True)
class Dim:
    """An entry for every `per`; `each`: of every part by itself."""

    of: Of
    per: int = 1
    each: bool = False

    def size(self, matrix: Matrix) -> int:
        if self.of == "rows":
            counts = matrix.rows if self.each else (sum(matrix.rows),)
            return sum(-(-count // self.per) for count in counts)
        values = {"columns": matrix.columns, "parts": len(matrix.rows), "experts": matrix.experts}
        return -(-values[self.of] // self.per)


ROWS, COLUMNS, PARTS, EXPERTS = Dim("rows"), Dim("columns"), Dim("parts"), Dim("experts")


@dataclass(frozen=True, slots=True)
class Made:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    name: str
    dtype: str
    dims: tuple[Dim, ...]

    def made(self, matrix: Matrix) -> Made:
        """One scale for each half of an expert's gate and up; of down, which is whole, one without a size."""
        dims = tuple(dim for dim in self.dims if not (matrix.is_down and dim.of == "parts"))
        return Made(self.name, self.dtype, tuple(dim.size(matrix) for dim in dims))


@dataclass(frozen=True, slots=True)
class Format:
    """Tensors of a dense matrix, and of experts. `cuts`: what a rank's part is a multiple of, in rows and
    columns, else SGLang ends."""

    name: str
    linear: tuple[Stored, ...]
    experts: tuple[Stored, ...]
    cuts: tuple[int, int] = (1, 1)
    padding: Padding = Padding()

    def tensors(self, matrix: Matrix) -> tuple[Made, ...]:
        if not matrix.experts:
            return tuple(one.made(matrix) for one in self.linear)
        padded = matrix.padded(self.padding)
        return tuple(one.made(padded) for one in self.experts)

    def check(self, matrix: Matrix) -> None:
        rows, columns = self.cuts
        uneven = [one for one in matrix.rows if one % rows] if matrix.cuts_rows else []
        if uneven or (matrix.cuts_columns and matrix.columns % columns):
            size, what, multiple = (
                (uneven[0], "rows", rows) if uneven else (matrix.columns, "columns", columns)
            )
            raise ConfigError(
                f"a rank has {size} {what} of a matrix, no multiple of the {multiple} of {self.name}: "
                "SGLang ends at it",
                "choose a smaller --tp, or --ep",
            )


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
