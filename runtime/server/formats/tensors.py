"""A matrix under a format: tensors by name, with shapes that follow from the matrix. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from runtime.server.errors import ConfigError

Of = Literal["rows", "columns", "all_columns", "parts", "experts", "all_experts", "one"]
MODEL = "model"  # the dtype that the model runs in
BYTES = {
    **dict.fromkeys(("int8", "uint8", "float8_e4m3fn"), 1),
    **dict.fromkeys(("bfloat16", "float16"), 2),
    **dict.fromkeys(("float32", "int32"), 4),
    "int64": 8,
}


@dataclass(frozen=True, slots=True)
class Matrix:
    """What one rank has of a layer's [rows, columns]; `rows` of each of the checkpoint's matrices in it."""

    rows: tuple[int, ...]
    columns: int
    all_columns: int  # of all ranks
    cuts_rows: bool
    experts: int = 0  # of this rank; 0: of none
    all_experts: int = 0
    is_down: bool = False  # of experts: back from the inner size
    any_rows: bool = False  # its class has blocks of scales end anywhere
    rows_over: int = 1  # so many ranks

    @property
    def cuts_columns(self) -> bool:
        return self.columns != self.all_columns

    def tiled(self, tiles: tuple[tuple[int, int], ...]) -> Matrix:
        """Of rows and columns up to multiples of the tile that makes them fewest."""
        found = [(_up(sum(self.rows), rows), _up(self.columns, columns)) for rows, columns in tiles]
        rows, columns = min(found, key=lambda one: (one[0] * one[1], sum(one)))
        return replace(self, rows=(rows,), columns=columns)

    def padded(self, by: Padding) -> Matrix:
        """Each half of gate and up by itself."""
        rows, columns = (by.hidden, by.inner) if self.is_down else (by.inner, by.hidden)
        return replace(
            self, rows=tuple(_up(row, rows) for row in self.rows), columns=_up(self.columns, columns)
        )


@dataclass(frozen=True, slots=True)
class Padding:
    """To multiples of these, of experts' sizes on a rank."""

    inner: int = 1
    hidden: int = 1


@dataclass(frozen=True, slots=True)
class Dim:
    """An entry for every `per`, rounded up to a multiple of `to` before; `each`: of every part by itself."""

    of: Of
    per: int = 1
    to: int = 1
    each: bool = False

    def size(self, matrix: Matrix) -> int:
        if self.of == "rows":
            counts = matrix.rows if self.each else (sum(matrix.rows),)
            return sum(self._entries(count) for count in counts)
        values = {
            "columns": matrix.columns,
            "all_columns": matrix.all_columns,
            "parts": len(matrix.rows),
            "experts": matrix.experts,
            "all_experts": matrix.all_experts,
            "one": 1,
        }
        return self._entries(values[self.of])

    def _entries(self, count: int) -> int:
        return -(-_up(count, self.to) // self.per)


ROWS, COLUMNS, PARTS, ONE = Dim("rows"), Dim("columns"), Dim("parts"), Dim("one")
EXPERTS, ALL_EXPERTS = Dim("experts"), Dim("all_experts")


@dataclass(frozen=True, slots=True)
class Made:
    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """`in_file`: a checkpoint has it; a server makes the others for itself."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    in_file: bool = True

    def made(self, matrix: Matrix) -> Made:
        """One scale for each half of an expert's gate and up; of down, which is whole, one without a size."""
        dims = tuple(dim for dim in self.dims if not (matrix.is_down and dim.of == "parts"))
        return Made(self.name, self.dtype, tuple(dim.size(matrix) for dim in dims))


@dataclass(frozen=True, slots=True)
class Change:
    """After loading, in order. "copied": laid out anew beside itself and then back, or kept beside where the
    sizes differ; "replaced": by one that may have another size; "added": beside the others; "dropped".
    `lists`: the new one is stacked from a list of its experts. `of`: which matrices alone, see `_fits`.
    `tiles`: rows and columns are multiples of one of these, the smallest."""

    how: Literal["copied", "replaced", "added", "dropped"]
    tensor: Stored
    lists: bool = False
    of: Literal["all", "taken", "others", "whole", "broken", "swizzled"] = "all"
    tiles: tuple[tuple[int, int], ...] = ()

    def is_made(self, matrix: Matrix) -> bool:
        if self.of in ("others", "broken"):
            return not _fits(matrix, "taken" if self.of == "others" else "whole")
        return self.of == "all" or _fits(matrix, self.of)

    def made(self, matrix: Matrix) -> Made:
        return self.tensor.made(matrix.tiled(self.tiles) if self.tiles else matrix)


# DeepGEMM takes multiples of these; CUTLASS's experts are not padded, or their scales alone are not.
_MULTIPLES = {"taken": (64, 128), "whole": (128, 128), "swizzled": (128, 64)}


def _fits(matrix: Matrix, what: str) -> bool:
    rows, columns = _MULTIPLES[what]
    return not (sum(matrix.rows) % rows or matrix.columns % columns)


@dataclass(frozen=True, slots=True)
class Cut:
    """What a rank's part has to be a multiple of, else SGLang ends. Where nothing is cut, only parts that
    are run as one are asked, and only `of_parts`."""

    rows: int = 1
    columns: int = 1
    all_columns: int = 1  # of all ranks
    of_parts: bool = False
    always: bool = False
    what: str = "a quantization block"
    waived: bool = False  # where the matrix's class says so
    last_is_free: bool = False  # of parts that are run as one, and not cut
    whole_rows: int = 1  # of all parts, but of experts' way down
    tile: tuple[int, int] | None = None  # of a kernel that takes the whole, in rows and columns of a share

    def check(self, matrix: Matrix) -> None:
        if self.waived and matrix.any_rows:
            return
        if self.tile is not None:
            self._check_tile(matrix, *self.tile)
        if not matrix.is_down and sum(matrix.rows) % self.whole_rows:
            raise _cut(sum(matrix.rows), "rows", self.whole_rows, self.what)
        asked = self.always or matrix.cuts_rows or (self.of_parts and len(matrix.rows) > 1)
        parts = matrix.rows[:-1] if self.last_is_free and not matrix.cuts_rows else matrix.rows
        wrong = next((rows for rows in parts if asked and rows % self.rows), None)
        if wrong is not None:
            raise _cut(wrong, "rows", self.rows, self.what)
        if (self.always or matrix.cuts_columns) and matrix.columns % self.columns:
            raise _cut(matrix.columns, "columns", self.columns, self.what)
        if matrix.all_columns % self.all_columns:
            raise ConfigError(
                f"{matrix.all_columns} columns of a matrix are no multiple of the {self.all_columns} of "
                f"{self.what}: SGLang ends at it"
            )

    def _check_tile(self, matrix: Matrix, rows: int, columns: int) -> None:
        share = sum(matrix.rows)
        if matrix.all_columns % columns or share * matrix.rows_over % rows:
            return
        if share % rows:
            raise _cut(share, "rows", rows, "a kernel's tile")
        if matrix.columns % columns:
            raise _cut(matrix.columns, "columns", columns, "a kernel's tile")


@dataclass(frozen=True, slots=True)
class Format:
    """`experts`: of all experts that a rank holds, in one tensor. `padding` is theirs, and `later` what it
    becomes after loading. `laid_cut` and `experts_laid_cut`: what is asked of them when they are laid out."""

    name: str
    linear: tuple[Stored, ...]
    experts: tuple[Stored, ...]
    linear_cut: Cut = Cut()
    experts_cut: Cut = Cut()
    laid_cut: Cut = Cut()
    experts_laid_cut: Cut = Cut()
    after_linear: tuple[Change, ...] = ()
    after_experts: tuple[Change, ...] = ()
    padding: Padding = Padding()
    later: Padding | None = None

    def tensors(self, matrix: Matrix) -> tuple[Made, ...]:
        if not matrix.experts:
            return tuple(one.made(matrix) for one in self.linear)
        padded = matrix.padded(self.padding)
        return tuple(one.made(padded) for one in self.experts)

    def after(self, matrix: Matrix) -> tuple[tuple[Change, Made], ...]:
        changes, laid = self.after_linear, matrix
        if matrix.experts:
            changes, laid = self.after_experts, matrix.padded(self.later or self.padding)
        (self.experts_laid_cut if matrix.experts else self.laid_cut).check(laid)
        return tuple((one, one.made(laid)) for one in changes if one.is_made(laid))

    def check(self, matrix: Matrix) -> None:
        (self.experts_cut if matrix.experts else self.linear_cut).check(matrix)


def _cut(size: int, what: str, multiple: int, block: str) -> ConfigError:
    return ConfigError(
        f"a rank has {size} {what} of a matrix, no multiple of the {multiple} of {block}: SGLang ends at it",
        "choose a smaller --tp, or --ep",
    )


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
