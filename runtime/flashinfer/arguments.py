"""Rebuilds the arguments of a recorded call: tensors of its sizes, random weights, valid routings."""

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

from runtime.flashinfer.inside import calls

_SPREAD = 0.05  # of activations and weights
_SCALE = re.compile(r"scale|alpha|beta|(^|_)s?sf($|_)|limit")
_ID = re.compile(r"expert|topk|top_k|select|_ids?$")
_PACKED = re.compile(r"weight|packed|scale|_sf")
# The byte that means 1.0 in an eight-bit type.
_ONE = {"float8_e4m3fn": 0x38, "float8_e5m2": 0x3C, "float8_e8m0fnu": 0x7F}
_ONE_OF_BYTES = 0x38  # e4m3's; as e8m0 it is small and finite
_BELOW_TWO = 0xBF  # clears the highest bit of an exponent


class CannotMake(RuntimeError):
    """The record names something that this FlashInfer does not have, or that no record may name."""


def public_function(name: str) -> Callable[..., Any]:
    """Return a function or class that FlashInfer itself marks as public."""
    module, _, path = name.partition(":")
    found = _import(module, name)
    if name not in calls.public:
        raise CannotMake(f"flashinfer.{name} is no public function of the FlashInfer here")
    for part in path.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def _import(module: str, name: str) -> Any:
    try:
        return import_module(f"flashinfer.{module}")
    except ImportError as error:
        raise CannotMake(f"flashinfer.{name} cannot be imported here: {error}") from None


def _own_class(name: str, kinds: tuple[type, ...]) -> Any:
    """Return a class that FlashInfer itself defines, if it holds only data."""
    module, _, path = name.partition(":")
    found: Any = _import(module, name)
    for part in path.split("."):
        found = getattr(found, part, None)
    is_own = isinstance(found, type) and found.__module__.startswith("flashinfer.")
    if not is_own or not (dataclasses.is_dataclass(found) or issubclass(found, kinds)):
        raise CannotMake(f"flashinfer.{name} is no class of data in the FlashInfer here")
    return found


@dataclass
class Pool:
    """Memory of large tensors, reused by later calls with the same sizes, so that no weights exist twice."""

    device: torch.device
    _held: dict[tuple[int, str], list[torch.Tensor]] = field(default_factory=dict)
    _taken: dict[tuple[int, str], list[torch.Tensor]] = field(default_factory=dict)

    def take(self, size: int, device: str) -> torch.Tensor:
        known = self._held.get((size, device))
        store = known.pop() if known else None
        if store is None:
            where = self.device if device == "cuda" else torch.device("cpu")
            store = torch.empty(max(1, size), dtype=torch.uint8, device=where)
        self._taken.setdefault((size, device), []).append(store)
        return store

    def give_back(self) -> None:
        """After a call, free the tensors that the call did not take."""
        self._held, self._taken = self._taken, {}

    def clear(self) -> None:
        self._held, self._taken = {}, {}


class Maker:
    """Makes the arguments of one call, or of an object that a call was given."""

    def __init__(self, storages: Sequence[Mapping[str, Any]], experts: int, pool: Pool) -> None:
        self._storages, self._experts, self._pool = storages, experts, pool
        self._stores: dict[int, torch.Tensor] = {}

    def one(self, value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [self.one(part, name) for part in value]
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        return getattr(self, f"_{kind}")(inner, name)

    def _tensor(self, told: Mapping[str, Any], name: str) -> torch.Tensor:
        storage, dtype = self._storages[told["storage"]], _dtype(told["dtype"])
        is_new = told["storage"] not in self._stores
        if is_new:
            self._stores[told["storage"]] = self._pool.take(storage["bytes"], storage["device"])
        store = self._stores[told["storage"]]
        whole = store[: store.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        tensor = whole.as_strided(told["shape"], told["stride"], told["offset"])
        if "values" in told:
            tensor.copy_(torch.tensor(told["values"], dtype=torch.int64).reshape(told["shape"]))
        elif is_new:
            fill(tensor, name, self._experts)
        return tensor

    def _tuple(self, inner: Any, name: str) -> tuple[Any, ...]:
        return tuple(self.one(part, name) for part in inner)

    def _set(self, inner: Any, name: str) -> set[Any]:
        return {self.one(part, name) for part in inner}

    def _dict(self, inner: Any, name: str) -> dict[Any, Any]:
        return {self.one(key, name): self.one(part, str(key)) for key, part in inner}

    def _float(self, inner: str, _: str) -> float:
        return float(inner)

    def _dtype(self, inner: str, _: str) -> torch.dtype:
        return _dtype(inner)

    def _device(self, inner: str, _: str) -> torch.device:
        return self._pool.device if inner == "cuda" else torch.device("cpu")

    def _enum(self, inner: Any, _: str) -> Any:
        kind = _own_class(inner[0], (enum.Enum,))
        if not issubclass(kind, enum.Enum) or inner[1] not in kind.__members__:
            raise CannotMake(f"flashinfer.{inner[0]} has no {inner[1]} here")
        return kind[inner[1]]

    def _fields(self, inner: Any, _: str) -> Any:
        kind = _own_class(inner[0], (tuple,))
        return kind(**{name: self.one(part, name) for name, part in inner[1].items()})

    def _made(self, inner: Any, _: str) -> Any:
        maker = Maker(inner["storages"], self._experts, self._pool)
        kind = public_function(inner["function"])
        arguments, named = maker.all(kind, inner["arguments"], inner["named"])
        return kind(*arguments, **named)

    def all(
        self, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        names = parameter_names(function)
        given = [self.one(value, name) for value, name in zip(arguments, names, strict=False)]
        return given, {name: self.one(value, name) for name, value in named.items()}


def parameter_names(function: Callable[..., Any]) -> list[str]:
    """Return the parameters' names by position, followed by numbers, in case a function has no signature."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return names + [f"argument {place}" for place in range(len(names), 64)]


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise CannotMake(f"torch {torch.__version__} has no type {name}")
    return found


def expert_count(named: Mapping[str, Any]) -> int:
    """Return how many experts ids may name: an argument says so, or the weights' first size times ranks."""
    numbers = {name: value for name, value in named.items() if type(value) is int}
    for name in ("num_experts", "n_routed_experts", "num_global_experts"):
        if name in numbers:
            return max(1, numbers[name])
    firsts = [
        value["tensor"]["shape"][0]
        for value in named.values()
        if isinstance(value, dict) and "tensor" in value and len(value["tensor"]["shape"]) >= 3
    ]
    return max([1, *firsts]) * max(1, numbers.get("ep_size", 1))


def fill(tensor: torch.Tensor, name: str, experts: int) -> None:
    """Fill a tensor in place, according to its dtype and the name of its parameter."""
    word = name.lower()
    is_scale = _SCALE.search(word) is not None
    if not tensor.numel():
        return
    if tensor.dtype == torch.bool:
        tensor.fill_(True)
    elif tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
        tensor.fill_(1.0) if is_scale or tensor.dim() == 0 else tensor.normal_(0, _SPREAD)
    elif tensor.dtype.is_floating_point:
        _fill_eight_bits(tensor, is_scale)
    elif _is_ids(tensor, word):
        tensor.copy_(even_routing(tensor.shape, experts).to(tensor.device, tensor.dtype))
    elif tensor.dtype in (torch.uint8, torch.int8):
        raw = tensor.view(torch.uint8)
        raw.fill_(_ONE_OF_BYTES) if is_scale else raw.random_(0, 256)
    else:
        tensor.random_() if _PACKED.search(word) else tensor.zero_()


def _fill_eight_bits(tensor: torch.Tensor, is_scale: bool) -> None:
    raw = tensor.view(torch.uint8)
    kind = str(tensor.dtype).removeprefix("torch.")
    if is_scale or kind == "float8_e8m0fnu" or kind not in _ONE:
        raw.fill_(_ONE.get(kind, _ONE_OF_BYTES))
    else:
        raw.random_(0, 256).bitwise_and_(_BELOW_TWO)


def _is_ids(tensor: torch.Tensor, word: str) -> bool:
    is_number = tensor.dtype in (torch.int16, torch.int32, torch.int64)
    return is_number and tensor.dim() <= 2 and bool(_ID.search(word)) and "weight" not in word


def even_routing(shape: torch.Size, experts: int) -> torch.Tensor:
    """Return ids in which each row has different experts, and all experts occur about equally often."""
    count = shape.numel()
    return (torch.arange(count) % max(1, experts)).reshape(shape)
