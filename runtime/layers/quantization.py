"""How a matrix is stored and multiplied: plain, fp8 in blocks, fp8 per tensor, or packed fp4.

A scheme names its tensors as checkpoints do, so a layer's parameters, their sizes and their loading follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

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

Tensors = Mapping[str, torch.Tensor]


class Scheme(ABC):
    """`create` makes the tensors of a [n, k] matrix (or of [experts, n, k] matrices)."""

    @abstractmethod
    def create(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> dict[str, torch.Tensor]: ...

    @abstractmethod
    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor: ...

    @abstractmethod
    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        """The matrix itself."""

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        """Where the block [rows, cols] of the matrix lies in the tensor called `name`."""
        return (rows, cols)


@dataclass(frozen=True, slots=True)
class Plain(Scheme):
    """`stored_block`: the checkpoint may hold it in fp8 blocks all the same."""

    stored_block: tuple[int, int] | None = None

    def create(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> dict[str, torch.Tensor]:
        return {"weight": torch.empty(shape, dtype=dtype, device=device)}

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return F.linear(x, tensors["weight"], bias)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"]


@dataclass(frozen=True, slots=True)
class BlockFp8(Scheme):
    """One fp32 scale for each block of the weight; activations are quantised in groups of a block's width."""

    block: tuple[int, int] = (128, 128)

    def create(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> dict[str, torch.Tensor]:
        *experts, n, k = shape
        blocks = (*experts, -(-n // self.block[0]), -(-k // self.block[1]))
        return {
            "weight": torch.empty(shape, dtype=torch.float8_e4m3fn, device=device),
            "weight_scale_inv": torch.empty(blocks, dtype=torch.float32, device=device),
        }

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return fp8_block_linear(x, tensors["weight"], tensors["weight_scale_inv"], bias, list(self.block))

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_blocks(tensors["weight"], tensors["weight_scale_inv"], list(self.block))

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        if name == "weight":
            return (rows, cols)
        return tuple(
            _blocks(part, size, what)
            for part, size, what in zip((rows, cols), self.block, ("rows", "columns"), strict=True)
        )


@dataclass(frozen=True, slots=True)
class TensorFp8(Scheme):
    """One scale for the weight and one, calibrated, for the activation.

    `tuned`: FlashInfer's GEMM, which SGLang uses on Hopper since 0.5.18.
    """

    tuned: bool = True

    def create(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> dict[str, torch.Tensor]:
        scalars = shape[:-2] or (1,)
        return {
            "weight": torch.empty(shape, dtype=torch.float8_e4m3fn, device=device),
            "weight_scale": torch.empty(scalars, dtype=torch.float32, device=device),
            "input_scale": torch.empty(scalars, dtype=torch.float32, device=device),
        }

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        scales = tensors["weight_scale"], tensors["input_scale"]
        return fp8_tensor_linear(x, tensors["weight"], *scales, bias, self.tuned)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"].float() * tensors["weight_scale"]

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        raise ConfigError("per-tensor fp8 checkpoints are not loaded by this runtime: use dummy weights")


@dataclass(frozen=True, slots=True)
class Fp4(Scheme):
    """Two values a byte and one scale a `group` along k: nvfp4 (16, e4m3), mxfp4 (32, powers of two).

    `backend`: the GEMM of a dense layer, by SGLang's name; without one of FlashInfer's it is plain again.
    """

    group: int
    backend: str = ""

    def create(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> dict[str, torch.Tensor]:
        *lead, k = shape
        scale = torch.float8_e4m3fn if self.group == 16 else torch.uint8
        tensors = {
            "weight": torch.empty(*lead, k // 2, dtype=torch.uint8, device=device),
            "weight_scale": torch.empty(*lead, -(-k // self.group), dtype=scale, device=device),
        }
        if self.group == 16:
            scalars = shape[:-2] or (1,)
            tensors["weight_scale_2"] = torch.empty(scalars, dtype=torch.float32, device=device)
            tensors["input_scale"] = torch.empty(scalars, dtype=torch.float32, device=device)
        return tensors

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        factors = tensors.get("weight_scale_2"), tensors.get("input_scale")
        return fp4_linear(x, tensors["weight"], tensors["weight_scale"], *factors, bias, self.backend)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_fp4(tensors["weight"], tensors["weight_scale"], tensors.get("weight_scale_2"))

    def part(self, name: str, rows: slice, cols: slice) -> Index:
        raise ConfigError("packed fp4 checkpoints are not loaded by this runtime: use dummy weights")


PLAIN = Plain()
_FP4_GROUPS = {"modelopt_fp4": 16, "nvfp4": 16, "mxfp4": 32}


def resolve_quantization(model: ModelConfig, runtime: RuntimeConfig) -> str | None:
    return runtime.quantization or model.checkpoint_quantization


def expert_scheme(model: ModelConfig, runtime: RuntimeConfig) -> Scheme:
    name = resolve_quantization(model, runtime)
    if name is None or name == "bf16":
        return PLAIN
    if name == "fp8":
        return BlockFp8(model.quantization_block) if model.quantization_block else TensorFp8(tuned=False)
    if name == "modelopt_fp8":
        return TensorFp8(tuned=runtime.release.tunes_fp8_gemm)
    if name in _FP4_GROUPS:
        return Fp4(_FP4_GROUPS[name])
    raise ConfigError(
        f"--quantization {name}: this runtime knows fp8, modelopt_fp8, modelopt_fp4, nvfp4 and mxfp4"
    )


def linear_scheme(model: ModelConfig, runtime: RuntimeConfig) -> Scheme:
    """mxfp4 checkpoints pack the experts alone. A server that makes its NVFP4 while loading does so with the
    experts alone, and leaves the rest as the checkpoint has it (nvfp4_online.py, since 0.5.18)."""
    if runtime.quantization == "modelopt_fp4" != model.checkpoint_quantization:
        runtime = replace(runtime, quantization=None)
    scheme = expert_scheme(model, runtime)
    if scheme == Fp4(16):
        return Fp4(16, runtime.fp4_gemm_backend)
    return PLAIN if scheme == Fp4(32) else scheme


def _blocks(part: slice, size: int, what: str) -> slice:
    if part.start % size:
        raise ConfigError(
            f"a shard of {length(part)} {what} starts inside a quantisation block of {size}: "
            "choose a smaller --tp, or --ep"
        )
    return slice(part.start // size, -(-part.stop // size))
