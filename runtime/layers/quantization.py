"""How a matrix is stored and multiplied: plain, in fp8 by blocks or per tensor, in packed fp4.

Its tensors, under a checkpoint's names, are those of its format. Of all other formats the sizes are known.
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
from runtime.server.call_rules import has_plain_experts, plain_anyway, quantizes_experts_alone
from runtime.server.config import ModelConfig, RuntimeConfig
from runtime.server.errors import ConfigError
from runtime.server.excluded import Excluded
from runtime.server.formats import plain
from runtime.server.formats.assigned import UNQUANTIZED, Quantized
from runtime.server.formats.kinds import Kind, Served, format_of, format_of_experts
from runtime.server.formats.tensors import MODEL, Change, Format, Made, Matrix

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Scheme(ABC):
    format: Format

    def create(self, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
        self.format.check(matrix)
        return {made.name: empty(made, dtype, device) for made in self.format.tensors(matrix)}

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

    format: Format = plain.PLAIN
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
    scale: str = "weight_scale_inv"

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        return fp8_block_linear(x, tensors["weight"], tensors[self.scale], bias, list(self.block))

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_blocks(tensors["weight"], tensors[self.scale], list(self.block))

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

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        scales = tensors["weight_scale"], tensors["input_scale"]
        return fp8_tensor_linear(x, tensors["weight"], *scales, bias, self.tuned)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return tensors["weight"].float() * tensors["weight_scale"]

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """The largest of what is run as one."""
        return {name: tensors[name].amax().reshape(1) for name in ("weight_scale", "input_scale")}


@dataclass(frozen=True, slots=True)
class Fp4(Scheme):
    """Two values a byte and one scale a `group` along k: nvfp4 (16, e4m3), mxfp4 (32, powers of two).

    `backend`: the GEMM of a dense layer, by SGLang's name; without one of FlashInfer's it is plain again.
    """

    group: int
    backend: str = ""
    scale: str = "weight_scale"

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        factors = tensors.get("weight_scale_2"), tensors.get("input_scale")
        return fp4_linear(x, tensors["weight"], tensors[self.scale], *factors, bias, self.backend)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        return dequantize_fp4(tensors["weight"], tensors[self.scale], tensors.get("weight_scale_2"))

    def finish(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        scale = tensors.get("weight_scale_2")
        return {} if scale is None else {"weight_scale_2": scale.amax().reshape(1)}


@dataclass(frozen=True, slots=True)
class Unread(Scheme):
    """Of a prediction: only its sizes are known."""

    def create(self, matrix: Matrix, dtype: torch.dtype, device: torch.device) -> dict[str, torch.Tensor]:
        if device.type != "meta":
            raise ConfigError(f"this runtime computes no matrices in {self.format.name}: only their sizes")
        return Scheme.create(self, matrix, dtype, device)

    def linear(self, x: torch.Tensor, tensors: Tensors, bias: torch.Tensor | None) -> torch.Tensor:
        raise NotImplementedError(self.format.name)

    def dequantize(self, tensors: Tensors) -> torch.Tensor:
        raise NotImplementedError(self.format.name)


PLAIN = Plain()
_ONLINE_FP4 = ("modelopt_fp4", "nvfp4_online", "nvfp4")
_NVFP4, _FP8 = Kind("nvfp4"), Kind("fp8", "tensor", is_static=True, widens="modelopt")
_ASKED: dict[str, Quantized] = {
    "fp8": Quantized(Kind("fp8_online"), Kind("fp8_online")),
    "w8a8_fp8": Quantized(Kind("fp8_online"), Kind("fp8", "row")),  # experts are cast as they come
    "modelopt_fp8": Quantized(_FP8, _FP8),
    "mxfp4": Quantized(experts=Kind("mxfp4_online")),
    "mxfp8": Quantized(Kind("mxfp8_online"), Kind("mxfp8_online")),
    "bf16": UNQUANTIZED,
}


def quantized(model: ModelConfig, runtime: RuntimeConfig) -> Quantized:
    """Of the checkpoint, or what a server makes of a plain one while it loads it."""
    asked, leaves_experts = runtime.quantization, has_plain_experts(model)
    if asked in _ONLINE_FP4 and leaves_experts:
        return model.quantized
    if asked in _ONLINE_FP4 and model.checkpoint_quantization != "modelopt_fp4":
        # nvfp4_online.py, since 0.5.18: of the experts alone; the rest is as the checkpoint has it.
        return replace(model.quantized, experts=_NVFP4, covers_experts=False)
    if model.checkpoint_quantization is not None or asked is None:
        return model.quantized
    if asked not in _ASKED:
        known = ", ".join((*_ASKED, *_ONLINE_FP4))
        raise ConfigError(f"--quantization {asked}: this runtime knows {known} of a plain checkpoint")
    made = replace(_ASKED[asked], excluded=Excluded(plain_anyway(model)))
    made = replace(made, experts=None) if leaves_experts else made
    return replace(made, linear=None) if quantizes_experts_alone(model) else made


def served(model: ModelConfig, runtime: RuntimeConfig) -> Served:
    return Served(
        runtime.sm_major,
        runtime.served_by or runtime.moe_runner_backend,
        runtime.moe_a2a_backend,
        model.gated_mlps,
        runtime.release.nvfp4_trtllm_rows,
        runtime.release.mxfp4_trtllm_rows,
        runtime.release.narrow_fp4_scales,
        runtime.fp8_gemm_backend,
        runtime.fp4_gemm_backend,
        runtime.release.fp8_gemm_layers,
        runtime.release.laid_out,
    )


def scheme_of(
    kind: Kind | None,
    model: ModelConfig,
    runtime: RuntimeConfig,
    computes: bool,
    experts: tuple[int, int] | None = None,
) -> Scheme:
    """`computes`: on a real device, which needs kernels; `experts`: their hidden and inner sizes."""
    by = served(model, runtime)
    made = format_of(kind, by) if experts is None else format_of_experts(kind, by, *experts)
    if kind is None:
        return PLAIN if made == plain.PLAIN else Plain(made)
    if kind.name == "fp8" and kind.per == "block":
        return BlockFp8(made, kind.block, kind.scale)
    if kind.name == "fp8" and kind.per == "tensor" and kind.is_static:
        return TensorFp8(made, tuned=runtime.release.tunes_fp8_gemm)
    if kind.name == "nvfp4" and not kind.is_awq:
        return Fp4(made, kind.group, runtime.fp4_gemm_backend)
    if kind.name == "mxfp4_online" or (kind.name == "mxfp4" and computes):
        return Fp4(made, 32)
    if kind.name == "mxfp4_beside_fp8" and computes:
        return Fp4(made, 32, scale="weight_scale_inv")
    return Unread(made)


def empty(made: Made, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    own = dtype if made.dtype == MODEL else getattr(torch, made.dtype)
    return torch.empty(made.shape, dtype=own, device=device)


def change(change: Change, made: Made, held: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """What a server does after loading, as far as memory sees it; `held` are its tensors."""
    old = held.get(made.name)
    if change.how == "dropped":
        del held[made.name]
        return
    device = next(iter(held.values())).device
    listed = empty(made, dtype, device) if change.lists else None
    new = empty(made, dtype, device)
    del listed
    if change.how == "copied" and old is not None and old.nbytes != new.nbytes:
        held[f"{made.name}_interleaved"] = new
    elif change.how != "copied":
        held[made.name] = new


def _blocks(part: slice, size: int, what: str) -> slice:
    if part.start % size:
        raise ConfigError(
            f"a shard of {length(part)} {what} starts inside a quantisation block of {size}: "
            "choose a smaller --tp, or --ep"
        )
    return slice(part.start // size, -(-part.stop // size))
