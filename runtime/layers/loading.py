"""How parameters are filled: each says which part of which checkpoint tensor it is; dummies need no file."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from runtime.layers.scaled_linear import dequantize_blocks
from runtime.server.errors import ConfigError

Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor's name in a checkpoint, the part of it that this rank reads, and what to make of it.

    `shape`: where other tensors of that name are laid out otherwise.
    """

    name: str
    index: Index = ()
    view: Callable[[torch.Tensor], torch.Tensor] | None = None
    block: tuple[int, int] | None = None  # of the fp8 that the checkpoint may have where this rank has none
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A view of a parameter and where it comes from: the first spelling that the checkpoint has."""

    target: torch.Tensor
    sources: tuple[Source, ...]
    may_lack: bool = False  # nobody reads it, and it is zeros where no checkpoint has it


class TensorReader(Protocol):
    def __contains__(self, name: str) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, index: Index) -> torch.Tensor: ...

    def describe(self) -> str: ...


def load(pieces: Iterable[Piece], checkpoint: TensorReader) -> None:
    for piece in pieces:
        source = next((source for source in piece.sources if _is_there(source, checkpoint)), None)
        if source is None and piece.may_lack:
            piece.target.zero_()
            continue
        if source is None:
            names = " nor ".join(source.name for source in piece.sources)
            raise ConfigError(f"{checkpoint.describe()} has no {names}: is it a checkpoint of this model?")
        tensor = _read(source, checkpoint)
        if tensor.shape != piece.target.shape:
            raise ConfigError(
                f"{checkpoint.describe()}: {source.name} is {list(tensor.shape)} where this rank needs "
                f"{list(piece.target.shape)}: does config.json belong to these weights?"
            )
        piece.target.copy_(tensor)


def _is_there(source: Source, checkpoint: TensorReader) -> bool:
    if source.name not in checkpoint:
        return False
    return source.shape is None or checkpoint.shape(source.name) == source.shape


def _read(source: Source, checkpoint: TensorReader) -> torch.Tensor:
    scale = f"{source.name}_scale_inv"
    if source.block and scale in checkpoint:
        whole, scales = checkpoint.read(source.name, ()), checkpoint.read(scale, ())
        return dequantize_blocks(whole, scales, list(source.block))[source.index]
    tensor = checkpoint.read(source.name, source.index)
    return source.view(tensor) if source.view else tensor


def draw_as_sglang(parameter: torch.Tensor) -> None:
    """srt/model_loader/weight_utils.py draws what is narrow as halves, and casts them."""
    if parameter.is_floating_point() and parameter.element_size() == 1:
        parameter.to(torch.float16).to(parameter.dtype)


def fill_dummy(name: str, parameter: torch.Tensor, seed: int) -> None:
    """Random values of a sane size, the same on every rank, in place: no temporaries however large."""
    if parameter.is_meta:
        return
    generator = torch.Generator(parameter.device).manual_seed(seed + zlib.crc32(name.encode()))
    if "scale" in name:
        # Packed in a byte, a scale is a power of two: 120 is 2 ** -7.
        parameter.fill_(120 if parameter.dtype == torch.uint8 else 0.01)
    elif parameter.dtype == torch.float8_e4m3fn:
        # Any byte without the top exponent bit: up to 1.875 of either sign, never a NaN.
        parameter.view(torch.uint8).random_(0, 256, generator=generator).bitwise_and_(0xBF)
    elif name.endswith("experts_of"):
        parameter.copy_(torch.arange(parameter.shape[1]))
    elif not parameter.is_floating_point():
        parameter.random_(0, 256, generator=generator)
    elif "norm" in name and name.endswith("weight"):
        parameter.fill_(1.0)
    else:
        parameter.uniform_(-0.02, 0.02, generator=generator)


def shard(total: int, size: int, rank: int, what: str) -> slice:
    """The rows of one rank out of `size`."""
    if total % size:
        raise ConfigError(f"{what} {total} cannot be split over {size} ranks: choose sizes that divide it")
    rows = total // size
    return slice(rank * rows, (rank + 1) * rows)


def length(part: slice) -> int:
    return part.stop - part.start


def even_rows(matrices: torch.Tensor) -> torch.Tensor:
    """Or values, of a bias."""
    return matrices[0::2] if matrices.dim() == 1 else matrices[..., 0::2, :]


def odd_rows(matrices: torch.Tensor) -> torch.Tensor:
    return matrices[1::2] if matrices.dim() == 1 else matrices[..., 1::2, :]
