"""Numbers for a tensor of which a record knows the sizes alone: no NaN, and no id out of range."""

from __future__ import annotations

import re

import torch

_SPREAD = 0.05  # of activations and weights
_SCALE = re.compile(r"scale|alpha|beta|(^|_)s?sf($|_)|limit")
_ID = re.compile(r"expert|topk|top_k|select|_ids?$")
_PACKED = re.compile(r"weight|packed|scale|_sf")
# The byte that is 1.0 in a type of eight bits.
_ONE = {"float8_e4m3fn": 0x38, "float8_e5m2": 0x3C, "float8_e8m0fnu": 0x7F}
_ONE_OF_BYTES = 0x38  # e4m3's; as e8m0 it is small and finite
_BELOW_TWO = 0xBF  # clears the highest bit of an exponent


def fill(tensor: torch.Tensor, name: str, experts: int) -> None:
    """In place, by its type and the name of its parameter."""
    word = name.lower()
    if not tensor.numel():
        return
    if tensor.dtype == torch.bool:
        tensor.fill_(True)
    elif tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
        _fill_floats(tensor, word)
    elif tensor.dtype.is_floating_point:
        _fill_eight_bits(tensor, word)
    elif _is_ids(tensor, word):
        tensor.copy_(even_routing(tensor.shape, experts).to(tensor.device, tensor.dtype))
    elif tensor.dtype in (torch.uint8, torch.int8) or _PACKED.search(word):
        _fill_bytes(tensor, word)
    else:
        tensor.zero_()


def _fill_floats(tensor: torch.Tensor, word: str) -> None:
    if tensor.dim() == 0 or _SCALE.search(word):
        tensor.fill_(1.0)
    else:
        tensor.normal_(0, _SPREAD)


def _fill_eight_bits(tensor: torch.Tensor, word: str) -> None:
    raw = tensor.view(torch.uint8)
    kind = str(tensor.dtype).removeprefix("torch.")
    if _SCALE.search(word) or kind == "float8_e8m0fnu" or kind not in _ONE:
        raw.fill_(_ONE.get(kind, _ONE_OF_BYTES))
    else:
        raw.random_(0, 256).bitwise_and_(_BELOW_TWO)


def _fill_bytes(tensor: torch.Tensor, word: str) -> None:
    if tensor.dtype.itemsize == 1:
        raw = tensor.view(torch.uint8)
        raw.fill_(_ONE_OF_BYTES) if _SCALE.search(word) else raw.random_(0, 256)
    else:
        tensor.random_()


def _is_ids(tensor: torch.Tensor, word: str) -> bool:
    is_number = tensor.dtype in (torch.int16, torch.int32, torch.int64)
    return is_number and tensor.dim() <= 2 and bool(_ID.search(word)) and "weight" not in word


def even_routing(shape: torch.Size, experts: int) -> torch.Tensor:
    """Each row names different experts, and each expert is named about as often as the others."""
    count = shape.numel()
    return (torch.arange(count) % max(1, experts)).reshape(shape)
