"""How a matrix is stored and multiplied: plain, in fp8 by blocks or per tensor, in packed fp4.

Its tensors, under a checkpoint's names, are those of its format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from runtime.layers.loading import Index, length
from runtime.layers.scaled_linear import (
    dequantize_blocks,
    dequantize_fp4,
    fp4_linear,
    fp8_block_linear,
    fp8_tensor_linear,
)
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.formats import kinds
from runtime.server.formats.kinds import Kind, Served, format_of
from runtime.server.formats.tensors import MODEL, Format, Matrix

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    format: Format

    def create(self, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
        self.format.check(matrix)
        made = {}
        for one in self.format.tensors(matrix):
            kind = dtype if one.dtype == MODEL else getattr(torch, one.dtype)
            made[one.name] = torch.empty(one.shape, dtype=kind, device=device)
        return made

    @abstractmethod
    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor: ...

    @abstractmethod
    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        """The matrix itself."""

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """After loading, what the product takes instead of what is stored."""
        return {}

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        """Where the block [rows, cols] of the matrix lies in the tensor called `name`."""
        raise ConfigError(
            f"checkpoints in {self.format.name} are not loaded by this runtime: use dummy weights"
        )


@dataclass(frozen=True, slots=True)
class Plain(Scheme):
    """`stored_block`: the checkpoint may hold it in fp8 blocks all the same."""

    format: Format = kinds.PLAIN
    stored_block: tuple[int, int] | None = None

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x, tensors["weight"], bias)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"]

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        return (rows, cols)


@dataclass(frozen=True, slots=True)
class BlockFp8(Scheme):
    """One fp32 scale for each block of the weight; activations are quantised in groups of a block's width."""

    block: tuple[int, int] = (128, 128)

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return fp8_block_linear(x, tensors["weight"], tensors["weight_scale_inv"], bias, list(self.block))

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_blocks(tensors["weight"], tensors["weight_scale_inv"], list(self.block))

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        if name == "weight":
            return (rows, cols)
        return (_blocks(rows, self.block[0], "rows"), _blocks(cols, self.block[1], "columns"))


@dataclass(frozen=True, slots=True)
class TensorFp8(Scheme):
    """One scale for the weight; one for the activation too, calibrated, or by its largest value."""

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        scales = tensors["weight_scale"], tensors.get("input_scale")
        return fp8_tensor_linear(x, tensors["weight"], *scales, bias)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"].float() * tensors["weight_scale"]

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """The largest of what is run as one."""
        names = [name for name in ("weight_scale", "input_scale") if name in tensors]
        return {name: tensors[name].amax().reshape(1) for name in names}


@dataclass(frozen=True, slots=True)
class Fp4(Scheme):
    """Two values a byte and one scale a group along k: nvfp4 (16, e4m3), mxfp4 (32, powers of two).

    `backend`: the GEMM of a dense layer, by SGLang's name; without one of FlashInfer's it is plain again.
    """

    backend: str = ""

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
    if kind is None:
        return PLAIN
    made = format_of(kind, Served(runtime.kernels.sm_major, runtime.kernels.moe, model.style.gated))
    if kind.name == "fp8":
        return BlockFp8(made, kind.block) if kind.per == "block" else TensorFp8(made)
    return Fp4(made, runtime.kernels.fp4_gemm)


def _blocks(part: slice, size: int, what: str) -> slice:
    if part.start % size:
        raise ConfigError(
            f"a shard of {length(part)} {what} starts inside a quantisation block of {size}: "
            "choose a smaller --tp, or --ep"
        )
    return slice(part.start // size, -(-part.stop // size))
