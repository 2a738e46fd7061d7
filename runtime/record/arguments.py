"""The arguments of a call as JSON: the allowed forms, checked before anything is made of them.

A scalar is itself and a list is a list. Anything else is an object with one member, whose name is the kind:

    {"tensor": {"dtype": "bfloat16", "shape": [8, 4], "stride": [4, 1], "offset": 0, "storage": 0}}
    {"tuple": [...]}   {"dict": [[key, value], ...]}   {"set": [...]}
    {"float": "nan"}   {"dtype": "bfloat16"}   {"device": "cuda"}
    {"enum": ["tllm_enums:ActivationType", "Swiglu"]}      a member of FlashInfer's own
    {"fields": ["fused_moe.core:Options", {"name": ...}]}  a dataclass or named tuple of FlashInfer's own
    {"made": {"function": ..., "arguments": [...], "named": {...}, "storages": [...]}}  an object

A tensor of few integers also has its "values".
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from runtime.record.checked import expect

MOST_VALUES = 4096
LARGEST = 1 << 40  # bytes of all storages of a call: no GPU has as many
_DEEPEST, _LARGEST_SIZE = 16, 1 << 50
_MOST_REPEATED = 1 << 31  # elements of a tensor that has more of them than bytes
_NAME = re.compile(r"[A-Za-z]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_WORD = re.compile(r"[a-z][a-z0-9_]{0,40}")
_FLOATS = ("nan", "inf", "-inf")


def check_function(name: Any, where: str) -> None:
    """Refuse anything but a function or class below `flashinfer.`, and names private to Python."""
    known = isinstance(name, str) and len(name) < 300 and _NAME.fullmatch(name)
    expect(bool(known) and "__" not in str(name).replace(".__call__", ""), "a name in FlashInfer", where)


def check_arguments(value: Any, storages: Sequence[int], where: str, depth: int = 0) -> None:
    expect(depth < _DEEPEST, "an argument, but one too deep", where)
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if isinstance(value, list):
        for place, one in enumerate(value):
            check_arguments(one, storages, f"{where}[{place}]", depth + 1)
        return
    expect(isinstance(value, dict), "an argument", where)
    expect(len(value) == 1, "an object with one member", where)
    ((kind, inner),) = value.items()
    _check(kind, inner, storages, f"{where}.{kind}", depth + 1)


def check_storage(size: Any, device: Any, where: str) -> None:
    expect(_is_size(size) and size <= LARGEST, f"of 0 to {LARGEST} bytes", f"{where}.bytes")
    expect(device in ("cpu", "cuda"), "cpu or cuda", f"{where}.device")


def bytes_made(value: Any) -> int:
    """Return the bytes of the storages of all objects that these checked arguments make."""
    if isinstance(value, list):
        return sum(map(bytes_made, value))
    if not isinstance(value, dict):
        return 0
    made = value.get("made")
    own = made.get("storages", []) if isinstance(made, dict) else []
    return sum(one["bytes"] for one in own) + sum(map(bytes_made, value.values()))


def _check(kind: str, inner: Any, storages: Sequence[int], where: str, depth: int) -> None:
    if kind == "tensor":
        _tensor(inner, storages, where)
    elif kind in ("tuple", "set"):
        expect(isinstance(inner, list), "a list", where)
        check_arguments(inner, storages, where, depth)
    elif kind == "dict":
        expect(isinstance(inner, list) and all(_is_pair(one) for one in inner), "a list of pairs", where)
        check_arguments(inner, storages, where, depth)
    elif kind == "float":
        expect(inner in _FLOATS, "nan, inf or -inf", where)
    elif kind in ("dtype", "device"):
        expect(isinstance(inner, str) and bool(_WORD.fullmatch(inner)), "a word", where)
    elif kind == "enum":
        expect(_is_pair(inner) and isinstance(inner[1], str), "a name and a member", where)
        check_function(inner[0], where)
    elif kind == "fields":
        expect(_is_pair(inner) and isinstance(inner[1], dict), "a name and its fields", where)
        check_function(inner[0], where)
        check_arguments(list(inner[1].values()), storages, where, depth)
    elif kind == "made":
        _made(inner, where, depth)
    else:
        expect(False, "a kind of argument", where)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _made(inner: Any, where: str, depth: int) -> None:
    members = {"function", "arguments", "named", "storages"}
    expect(isinstance(inner, dict) and inner.keys() == members, "an object with how it was made", where)
    check_function(inner["function"], where)
    expect(isinstance(inner["arguments"], list) and isinstance(inner["named"], dict), "arguments", where)
    stores = inner["storages"]
    expect(isinstance(stores, list), "with storages", where)
    for one in stores:
        expect(isinstance(one, dict) and one.keys() == {"bytes", "device"}, "with storages", where)
        check_storage(one["bytes"], one["device"], f"{where}.storages")
    sizes = [one["bytes"] for one in stores]
    check_arguments([*inner["arguments"], *inner["named"].values()], sizes, where, depth)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_SIZE


def _tensor(inner: Any, storages: Sequence[int], where: str) -> None:
    """Refuse a tensor outside its storage, as far as this can be checked without the bytes of its dtype."""
    expect(isinstance(inner, dict), "an object", where)
    expect(inner.keys() - {"values"} == {"dtype", "shape", "stride", "offset", "storage"}, "a tensor", where)
    expect(isinstance(inner["dtype"], str) and bool(_WORD.fullmatch(inner["dtype"])), "of a type", where)
    shape, stride = inner["shape"], inner["stride"]
    for sizes in (shape, stride):
        expect(isinstance(sizes, list) and len(sizes) <= 16 and all(map(_is_size, sizes)), "sizes", where)
    expect(len(shape) == len(stride) and _is_size(inner["offset"]), "of one shape", where)
    place = inner["storage"]
    expect(_is_size(place) and place < len(storages), "in a storage", where)
    last = inner["offset"] + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    expect(0 in shape or last < max(1, storages[place]), "within its storage", where)
    expect(math.prod(shape) <= max(_MOST_REPEATED, storages[place]), "of fewer elements", where)
    values = inner.get("values", [])
    expect(isinstance(values, list) and len(values) <= MOST_VALUES, "of few values", where)
    expect(all(type(one) in (int, bool) for one in values), "of integers", where)
