"""Random weights of the exact sizes: a start needs no values of a checkpoint."""

from __future__ import annotations

import zlib

import torch


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
