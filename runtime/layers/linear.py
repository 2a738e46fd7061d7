"""One linear layer for every sharding: a list of parts, each some rows and columns of a checkpoint's matrix.

Column-parallel, row-parallel, merged and replicated layers differ only in their parts. A row-parallel result
is a partial sum: the caller reduces it, because only the caller knows over which group and when.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from runtime.layers.loading import length
from runtime.layers.quantization import PLAIN, Matrix, Scheme, Tensors


def register(module: nn.Module, tensors: Tensors) -> dict[str, nn.Parameter]:
    """Replace all of the module's parameters by these tensors."""
    parameters = {name: nn.Parameter(tensor, requires_grad=False) for name, tensor in tensors.items()}
    for name in [name for name, _ in module.named_parameters(recurse=False) if name not in parameters]:
        delattr(module, name)
    for name, parameter in parameters.items():
        module.register_parameter(name, parameter)
    return parameters


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of the checkpoint's matrix `name`."""

    name: str
    rows: slice


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
        kept_as: tuple[int, ...] = (),
    ) -> None:
        """`adds_bias` is for partial sums: only one rank of the group may add the bias. `rows_over` and
        `columns_over` are the numbers of ranks that share the matrix. `kept_as` are the rows of each matrix
        that a server stores."""
        super().__init__()
        self.parts, self.cols, self.scheme, self.adds_bias = list(parts), cols, scheme, adds_bias
        rows, columns = tuple(length(part.rows) for part in parts), length(cols)
        matrix = Matrix(kept_as or rows, columns, rows_over > 1, columns_over > 1)
        tensors = scheme.create(matrix, dtype, device)
        if bias:
            tensors["bias"] = torch.zeros(sum(rows), dtype=dtype, device=device)
        self.tensors = register(self, tensors)
        self._taken: Tensors = self.tensors

    def finish(self) -> None:
        """Convert the loaded tensors into those that the product uses."""
        self._taken = {**self.tensors, **self.scheme.finish(self.tensors)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = self.tensors.get("bias") if self.adds_bias else None
        return self.scheme.linear(x, self._taken, bias)

    def dequantized(self) -> torch.Tensor:
        """Return the dequantized matrix."""
        return self.scheme.dequantize(self._taken)
