"""The dummies that fill a rank's weights, and its part of a row. A start reads no checkpoint."""

import zlib

import torch

from runtime.server.errors import ConfigError


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
