"""How a matrix is stored and multiplied: plain, in fp8 by blocks or per tensor, in packed fp4.

Tensors have the names of a checkpoint, and shapes that follow from the matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F

from runtime.layers.scaled_linear import (
    dequantize_blocks,
    dequantize_fp4,
    fp4_linear,
    fp8_block_linear,
    fp8_tensor_linear,
)
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.quantized import Kind

Tensors = Mapping[str, torch.Tensor]
_FP8, _BYTE, _SCALE = torch.float8_e4m3fn, torch.uint8, torch.float32
_TRTLLM = ("flashinfer_trtllm", "flashinfer_trtllm_routed")


class Padding(NamedTuple):
    """Experts' sizes on a rank are padded to multiples of these."""

    inner: int = 1
    hidden: int = 1


_AS_IT_IS = Padding()


class Stored(NamedTuple):
    """One stored tensor; dtype None means the dtype of the model."""

    dtype: torch.dtype | None
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One rank's part of a layer's [rows, columns]; `rows` lists the rows of each checkpoint matrix in it."""

    rows: tuple[int, ...]
    columns: int
    cuts_rows: bool = False  # ranks share them
    cuts_columns: bool = False
    experts: int = 0  # number of this rank's experts; 0: no experts
    is_down: bool = False  # of experts: the matrix back from the inner size

    def padded(self, by: Padding) -> Matrix:
        """Return the padded matrix; gate and up are padded each by itself."""
        rows, columns = (by.hidden, by.inner) if self.is_down else (by.inner, by.hidden)
        own = tuple(_up(row, rows) for row in self.rows)
        return replace(self, rows=own, columns=_up(self.columns, columns))

    def shape(self, rows: int = 1, columns: int = 1) -> tuple[int, ...]:
        """Return the shape with an entry per `rows` x `columns`; gate and up of experts are counted each."""
        counts = self.rows if self.experts else (sum(self.rows),)
        sizes = sum(-(-count // rows) for count in counts), -(-self.columns // columns)
        return (self.experts, *sizes) if self.experts else sizes

    @property
    def one_each(self) -> tuple[int, ...]:
        """Return the shape of one scale per matrix: for experts one per gate and up, or one per down."""
        if not self.experts:
            return (len(self.rows),)
        return (self.experts,) if self.is_down else (self.experts, len(self.rows))


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    """A storage format. Unless a rank's rows and columns are multiples of `cuts`, SGLang exits."""

    name: str
    cuts: tuple[int, int] = (1, 1)
    padding: Padding = _AS_IT_IS

    def create(self, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
        self._check(matrix)
        stored = self.stored(matrix.padded(self.padding) if matrix.experts else matrix)
        return {
            name: torch.empty(one.shape, dtype=one.dtype or dtype, device=device)
            for name, one in stored.items()
        }

    def _check(self, matrix: Matrix) -> None:
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

    @abstractmethod
    def stored(self, m: Matrix) -> dict[str, Stored]:
        """Return the tensors, in the order in which they are created."""

    @abstractmethod
    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor: ...

    @abstractmethod
    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        """Return the matrix."""

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Return the tensors made after loading that the product uses in place of stored ones."""
        return {}


@dataclass(frozen=True, slots=True)
class Plain(Scheme):
    """Plain values."""

    name: str = "plain"

    def stored(self, m: Matrix) -> dict[str, Stored]:
        return {"weight": Stored(None, m.shape())}

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x, tensors["weight"], bias)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"]


@dataclass(frozen=True, slots=True)
class BlockFp8(Scheme):
    """One fp32 scale per block of the weight; activations are quantised in groups of a block's width."""

    block: tuple[int, int] = (128, 128)

    def stored(self, m: Matrix) -> dict[str, Stored]:
        return {"weight": Stored(_FP8, m.shape()), "weight_scale_inv": Stored(_SCALE, m.shape(*self.block))}

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return fp8_block_linear(x, tensors["weight"], tensors["weight_scale_inv"], bias, self.block)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_blocks(tensors["weight"], tensors["weight_scale_inv"], self.block)


@dataclass(frozen=True, slots=True)
class TensorFp8(Scheme):
    """One scale for the weight. The activation's is stored if `is_static`, else its largest value sets it."""

    is_static: bool = False

    def stored(self, m: Matrix) -> dict[str, Stored]:
        found = {"weight": Stored(_FP8, m.shape()), "weight_scale": Stored(_SCALE, m.one_each)}
        if self.is_static:
            found["input_scale"] = Stored(_SCALE, m.one_each[:1])
        return found

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        scales = tensors["weight_scale"], tensors.get("input_scale")
        return fp8_tensor_linear(x, tensors["weight"], *scales, bias)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"].float() * tensors["weight_scale"]

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Return the largest scale of matrices that run as one."""
        names = [name for name in ("weight_scale", "input_scale") if name in tensors]
        return {name: tensors[name].amax().reshape(1) for name in names}


@dataclass(frozen=True, slots=True)
class Fp4(Scheme):
    """Two values per byte and one scale per group along k: nvfp4 (16, e4m3), mxfp4 (32, powers of two).

    `backend` is SGLang's name of a dense layer's GEMM; one that is not FlashInfer's dequantizes the weight.
    """

    group: int = 16
    backend: str = ""

    def stored(self, m: Matrix) -> dict[str, Stored]:
        if self.name == "mxfp4":  # only gpt-oss's experts, which have biases
            return {
                "weight": Stored(_BYTE, m.shape(columns=2)),
                "weight_scale": Stored(_BYTE, m.shape(columns=self.group)),
                "bias": Stored(None, m.shape()[:-1]),
            }
        return {
            "weight": Stored(_BYTE, m.shape(columns=2)),
            "weight_scale": Stored(_FP8, m.shape(columns=self.group)),
            "weight_scale_2": Stored(_SCALE, m.one_each),
            "input_scale": Stored(_SCALE, m.one_each),
        }

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        factors = tensors.get("weight_scale_2"), tensors.get("input_scale")
        return fp4_linear(x, tensors["weight"], tensors["weight_scale"], *factors, bias, self.backend)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_fp4(tensors["weight"], tensors["weight_scale"], tensors.get("weight_scale_2"))

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        scale = tensors.get("weight_scale_2")
        return {} if scale is None else {"weight_scale_2": scale.amax().reshape(1)}


PLAIN = Plain()


def scheme_of(kind: Kind | None, model: ModelConfig, runtime: RuntimeConfig) -> Scheme:
    """Return the scheme of a matrix. Experts are padded as their backend needs it."""
    kernels = runtime.kernels
    if kind is None:
        return PLAIN
    if kind.name == "fp8":
        if kind.per == "block":
            return BlockFp8("blocks", kind.block, block=kind.block)
        return TensorFp8("tensors", is_static=kind.is_static)
    if kind.name == "nvfp4":
        gated = 64 if model.style.gated else 128
        padding = Padding(gated) if kernels.moe in _TRTLLM else _AS_IT_IS
        return Fp4("nvfp4", (1, kind.group), padding, kind.group, kernels.fp4_gemm)
    padding = Padding(64)
    if kernels.moe == "flashinfer_mxfp4":
        padding = Padding(128 if kernels.sm_major == 10 else 1, 256)
    return Fp4("mxfp4", (1, 1), padding, kind.group, kernels.fp4_gemm)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
