"""How parameters are filled: each names its part of a checkpoint's tensor. Dummies need no checkpoint."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runtime.layers.scaled_linear import dequantize_blocks
from runtime.server.errors import ConfigError

Index = tuple[slice, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A tensor's name in a checkpoint, the part of it that this rank reads, and a function to apply."""

    name: str
    index: Index = ()
    view: Callable[[torch.Tensor], torch.Tensor] | None = None
    block: tuple[int, int] | None = None  # of a checkpoint that may be fp8 although this rank is not


@dataclass(frozen=True, slots=True)
class Piece:
    """A view of a parameter, and the names its tensor may have; the first that the checkpoint has is used."""

    target: torch.Tensor
    sources: tuple[Source, ...]


class Checkpoint:
    """Reads only the requested part of a tensor. `block_sparse_moe` is also found under the name `mlp`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise ConfigError(f"{folder} holds no *.safetensors: is it a folder of save_pretrained?")
        self._where = {
            name.replace(".block_sparse_moe.", ".mlp."): (opened, name)
            for opened in map(_open, files)
            for name in opened.keys()  # noqa: SIM118
        }

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def read(self, name: str, index: Index) -> torch.Tensor:
        opened, own = self._where[name]
        return opened.get_slice(own)[index] if index else opened.get_tensor(own)


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(file, "pt")
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} is not a safetensors file: {error}") from None


def load(pieces: Iterable[Piece], checkpoint: Checkpoint) -> None:
    for piece in pieces:
        source = next((source for source in piece.sources if source.name in checkpoint), None)
        if source is None:
            names = " nor ".join(source.name for source in piece.sources)
            raise ConfigError(f"{checkpoint.folder} has no {names}: is it a checkpoint of this model?")
        tensor = _read(source, checkpoint)
        if tensor.shape != piece.target.shape:
            raise ConfigError(
                f"{checkpoint.folder}: {source.name} is {list(tensor.shape)} where this rank needs "
                f"{list(piece.target.shape)}: does config.json belong to these weights?"
            )
        piece.target.copy_(tensor)


def _read(source: Source, checkpoint: Checkpoint) -> torch.Tensor:
    scale = f"{source.name}_scale_inv"
    if source.block and scale in checkpoint:
        whole, scales = checkpoint.read(source.name, ()), checkpoint.read(scale, ())
        return dequantize_blocks(whole, scales, source.block)[source.index]
    tensor = checkpoint.read(source.name, source.index)
    return source.view(tensor) if source.view else tensor


def fill_dummy(name: str, parameter: torch.Tensor) -> None:
    """Fill with random values of a sane size, the same on every rank, in place and without temporaries."""
    if parameter.is_meta:
        return
    generator = torch.Generator(parameter.device).manual_seed(zlib.crc32(name.encode()))
    if "scale" in name:
        # Packed in a byte, a scale is a power of two: 120 is 2 ** -7.
        parameter.fill_(120 if parameter.dtype == torch.uint8 else 0.01)
    elif parameter.dtype == torch.float8_e4m3fn:
        # Any byte without the top exponent bit: up to 1.875 of either sign, never a NaN.
        parameter.view(torch.uint8).random_(0, 256, generator=generator).bitwise_and_(0xBF)
    elif not parameter.is_floating_point():
        parameter.random_(0, 256, generator=generator)
    elif "norm" in name and name.endswith("weight"):
        parameter.fill_(1.0)
    else:
        parameter.uniform_(-0.02, 0.02, generator=generator)


def shard(total: int, size: int, rank: int, what: str) -> slice:
    """Return the rows of one rank out of `size`."""
    if total % size:
        raise ConfigError(f"{what} {total} cannot be split over {size} ranks: choose sizes that divide it")
    rows = total // size
    return slice(rank * rows, (rank + 1) * rows)


def length(part: slice) -> int:
    return part.stop - part.start


def moved(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def rows_of_heads(heads: slice, width: int) -> slice:
    return slice(heads.start * width, heads.stop * width)
