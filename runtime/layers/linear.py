"""One linear layer for every sharding: a list of parts, each some rows and columns of a checkpoint's matrix.

Column-parallel, row-parallel, merged and replicated layers differ in their parts alone. A row-parallel result
is a partial sum: the caller reduces it, because what follows decides over which group and when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from runtime.layers.loading import Piece, Source, length
from runtime.layers.quantization import PLAIN, Plain, Scheme, Tensors, Unread, change
from runtime.layers.scaled_linear import unread_linear
from runtime.server.formats.tensors import Matrix

JOINED = ("plain", "mxfp8")


def register(module: nn.Module, tensors: Tensors) -> dict[str, nn.Parameter]:
    """In place of those that it had under these names, and without its others."""
    parameters = {name: nn.Parameter(tensor, requires_grad=False) for name, tensor in tensors.items()}
    for name in [name for name, _ in module.named_parameters(recurse=False) if name not in parameters]:
        delattr(module, name)
    for name, parameter in parameters.items():
        module.register_parameter(name, parameter)
    return parameters


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of the matrix called `name` in a checkpoint; in a layer with a bias, a part may have none.

    `within`: the larger matrix, and its rows, that some checkpoints have instead.
    """

    name: str
    rows: slice
    biased: bool = True
    within: tuple[str, slice] | None = None
    taken: Callable[[torch.Tensor], torch.Tensor] | None = None  # out of what is called so
    stored: str | None = None  # what a checkpoint calls it, which is another part's name, too
    idle: bool = False  # nobody reads what it gives: checkpoints need not have it


class Linear(nn.Module):
    def __init__(
        self,
        parts: Sequence[Part],
        cols: slice,
        dtype: torch.dtype,
        device: torch.device,
        *,
        scheme: Scheme = PLAIN,
        bias: bool = False,
        adds_bias: bool = True,
        rows_over: int = 1,
        columns_over: int = 1,
        is_one: bool = False,
        kept_as: tuple[int, ...] = (),
        any_rows: bool = False,
        spare: int = 0,
    ) -> None:
        """`adds_bias` is for partial sums: only one rank of the group may add it. `rows_over` and
        `columns_over`: so many ranks share the matrix. `is_one`: a server keeps the parts as one matrix;
        `kept_as`: as those of so many rows. `any_rows`: quantization blocks need not fit its parts. `spare`
        rows more, which nobody reads."""
        super().__init__()
        self.parts, self.cols, self.scheme, self.adds_bias = list(parts), cols, scheme, adds_bias
        rows, columns = tuple(length(part.rows) for part in parts), length(cols)
        if spare:
            rows = (*rows[:-1], rows[-1] + spare)
        self.rows, self.dtype = sum(rows), dtype
        parts_of = (self.rows,) if is_one else kept_as or rows
        cut, everywhere = rows_over > 1, columns * columns_over
        self.matrix = Matrix(parts_of, columns, everywhere, cut, any_rows=any_rows, rows_over=rows_over)
        tensors = scheme.create(self.matrix, dtype, device)
        if bias:
            tensors["bias"] = torch.zeros(self.rows, dtype=dtype, device=device)
        self.tensors = register(self, tensors)
        self._taken: Tensors = self.tensors

    def finish(self) -> None:
        """After loading."""
        self._taken = {**self.tensors, **self.scheme.finish(self.tensors)}

    def relay(self) -> None:
        """As a server lays it out anew after loading: of a prediction."""
        held: dict[str, torch.Tensor] = dict(self._taken)
        before = held.get("weight")
        for how, made in self.scheme.format.after(self.matrix):
            change(how, made, held, self.dtype)
        if before is not None:  # a kernel that pads it answers for as many rows as there were
            held["weight"] = held["weight"][tuple(map(slice, before.shape))]
        self.tensors = register(self, held)
        self._taken = self.tensors

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.scheme, Unread):
            return unread_linear(x, self.rows)
        bias = self.tensors.get("bias") if self.adds_bias else None
        return self.scheme.linear(x, self._taken, bias)

    def dequantized(self) -> torch.Tensor:
        """The matrix itself."""
        if isinstance(self.scheme, Unread):
            device = next(iter(self.tensors.values())).device
            return torch.empty(self.rows, length(self.cols), dtype=self.dtype, device=device)
        return self.scheme.dequantize(self._taken)

    def pieces(self) -> Iterator[Piece]:
        start = 0
        for part in self.parts:
            local = slice(start, start + length(part.rows))
            for name, tensor in self.tensors.items():
                if name == "bias" and not part.biased:
                    continue
                yield replace(self._piece(part, local, name, tensor), may_lack=part.idle)
            start = local.stop

    def _piece(self, part: Part, local: slice, name: str, tensor: torch.Tensor) -> Piece:
        source = f"{part.stored or part.name}.{name}"
        taken = part.taken
        if name == "bias":
            view = None if taken is None else lambda whole: taken(whole)[part.rows]
            return Piece(tensor[local], (Source(source, () if view else (part.rows,), view),))
        index = self.scheme.part(name, part.rows, self.cols)
        target = tensor[self.scheme.part(name, local, slice(0, length(self.cols)))] if index else tensor
        if taken is not None:
            return Piece(target, (Source(source, view=lambda whole: taken(whole)[index]),))
        block = self.scheme.stored_block if isinstance(self.scheme, Plain) else None
        sources = [Source(source, index, block=block)]
        if part.within is not None:
            whole, rows = part.within
            sources.append(Source(f"{whole}.{name}", self.scheme.part(name, rows, self.cols), block=block))
        return Piece(target, tuple(sources))


def joins(first: Linear, second: Linear) -> bool:
    """Whether one matrix can be made of both: plain ones, and in mxfp8 (srt/models/minimax_m3.py)."""
    kinds = first.scheme.format.name, second.scheme.format.name
    return kinds[0] == kinds[1] and kinds[0] in JOINED


def join(first: Linear, second: Linear) -> None:
    """Rows of `second` behind those of `first`, which alone is of use then."""
    held = {name: torch.cat((tensor, second.tensors[name])) for name, tensor in first.tensors.items()}
    rows = (*first.matrix.rows, *second.matrix.rows)
    first.parts, first.rows = [*first.parts, *second.parts], sum(rows)
    first.matrix = replace(first.matrix, rows=rows)
    first.tensors = register(first, held)
    first._taken = first.tensors
