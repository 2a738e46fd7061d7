"""The arguments of a call as data, in the form that `runtime/record/arguments.py` checks."""

import dataclasses
import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

from runtime.ghost.inside import library

MOST_VALUES = 4096
_PACKAGE = "flashinfer."
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "bool")
_ALIGNED = 512  # torch's allocator gives nothing that is aligned to less

# Returns how an object of FlashInfer was made, or None.
Made = Callable[[Any], "dict[str, Any] | None"]


def name_of(thing: Any) -> str | None:
    """Return the name of a function or class below `flashinfer.`, or None if it is not FlashInfer's."""
    module = getattr(thing, "__module__", None) or ""
    if not module.startswith(_PACKAGE):
        return None
    return f"{module.removeprefix(_PACKAGE)}:{thing.__qualname__}"


class Description:
    """The arguments of one call. `unknown` names the arguments that cannot be written as data."""

    def __init__(self, made: Made) -> None:
        self.unknown: list[str] = []
        self._made = made
        self._storages: list[dict[str, Any]] = []
        self._places: dict[tuple[int, str], int] = {}
        self._tensors: list[dict[str, Any]] = []

    def of(self, arguments: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        told = {
            "arguments": [self._one(value) for value in arguments],
            "named": {name: self._one(value) for name, value in named.items()},
        }
        return {**told, "storages": self._reached()}

    def _one(self, value: Any) -> Any:
        import torch

        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, enum.Enum):
            return self._member(value)
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": str(float(value))}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": value.type}
        return self._several(value)

    def _several(self, value: Any) -> Any:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._fields(value, dict(zip(value._fields, value, strict=True)))
        if isinstance(value, tuple):
            return {"tuple": [self._one(one) for one in value]}
        if isinstance(value, list):
            return [self._one(one) for one in value]
        if isinstance(value, (set, frozenset)):
            return {"set": sorted((self._one(one) for one in value), key=str)}
        if isinstance(value, dict):
            return {"dict": [[self._one(key), self._one(one)] for key, one in value.items()]}
        made = self._made(value)
        if made is not None:
            return {"made": made}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value) if field.init]
            return self._fields(value, {name: getattr(value, name) for name in names})
        return self._foreign(value)

    def _member(self, value: enum.Enum) -> Any:
        """Describe an enum's member. Of a caller's own enum, FlashInfer sees only a number or word."""
        name = name_of(type(value))
        if name is not None:
            return {"enum": [name, value.name]}
        return self._one(value.value) if isinstance(value, (int, str)) else self._foreign(value)

    def _fields(self, value: Any, fields: dict[str, Any]) -> Any:
        name = name_of(type(value))
        if name is None:
            return self._foreign(value)
        return {"fields": [name, {field: self._one(one) for field, one in fields.items()}]}

    def _foreign(self, value: Any) -> None:
        self.unknown.append(f"{type(value).__module__}.{type(value).__qualname__}")

    def _tensor(self, tensor: Any) -> dict[str, Any]:
        if str(tensor.layout) != "torch.strided" or tensor.device.type not in ("cpu", "cuda"):
            self.unknown.append(f"a {tensor.layout} tensor on {tensor.device.type}")
            return {"dtype": "uint8", "shape": [0], "stride": [1], "offset": 0, "storage": self._empty()}
        storage, size = tensor.untyped_storage(), tensor.element_size()
        where = (storage._cdata, tensor.device.type)
        place = self._places.setdefault(where, len(self._storages))
        if place == len(self._storages):
            self._storages.append({"device": tensor.device.type, "low": None, "high": 0})
        first = tensor.storage_offset()
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = first + sum((length - 1) * step for length, step in steps) + 1 if tensor.numel() else first
        reached = self._storages[place]
        low = reached["low"]
        reached["low"] = first * size if low is None else min(low, first * size)
        reached["high"] = max(reached["high"], last * size)
        told = {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "stride": list(tensor.stride()),
            "offset": first,
            "storage": place,
        }
        self._tensors.append({"told": told, "size": size})
        values = values_of(tensor, told["dtype"])
        return told if values is None else {**told, "values": values}

    def _empty(self) -> int:
        self._storages.append({"device": "cpu", "low": 0, "high": 0})
        return len(self._storages) - 1

    def _reached(self) -> list[dict[str, Any]]:
        """Return the storages from the first byte that a tensor uses; tensors' offsets start there."""
        begins = [(one["low"] or 0) // _ALIGNED * _ALIGNED for one in self._storages]
        for one in self._tensors:
            told = one["told"]
            told["offset"] -= begins[told["storage"]] // one["size"]
        return [
            {"bytes": one["high"] - begin, "device": one["device"]}
            for one, begin in zip(self._storages, begins, strict=True)
        ]


def values_of(tensor: Any, dtype: str) -> list[int] | None:
    """Return the values of a small tensor of integers (sizes, offsets, expert counts), if they are known."""
    if dtype not in _INTEGERS or not 0 < tensor.numel() <= MOST_VALUES or tensor.dim() > 2:
        return None
    if tensor.device.type == "cpu":
        return [int(one) for one in tensor.flatten().tolist()]
    import torch

    unreal = library.is_open() and not library.library().marked(tensor.data_ptr(), tensor.nbytes)
    if unreal or torch.cuda.is_current_stream_capturing() or not tensor.is_contiguous():
        return None
    return [int(one) for one in tensor.flatten().tolist()]
