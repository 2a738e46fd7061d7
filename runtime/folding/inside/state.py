"""What the arguments of a call hold, such as a batch with its residuals. Layers may leave results there."""

import enum
import functools
import types
from collections.abc import Sequence
from copyreg import _slotnames as slots_of  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import torch

Path = tuple[Any, ...]  # the place of an argument, then the names of attributes
PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device))
_ALONE = (*PLAIN, torch.Tensor, torch.nn.Module, enum.Enum)
FEW = 8  # attributes: an object below an argument that has more is known by its identity alone


class State(NamedTuple):
    tensors: dict[Path, tuple[Any, ...]]  # on the device
    numbers: dict[Path, int]
    form: list[Any]  # of everything


def state(given: Sequence[Any]) -> State:
    """Return what the arguments hold now. Each object is entered once, by the first path to it."""
    found, met = State({}, {}, []), dict[int, int]()

    def look(one: Any, path: Path) -> None:
        found.form.append(met.get(id(one)) or form_of(one))
        if type(one) is int:
            found.numbers[path] = one
        elif isinstance(one, torch.Tensor):
            if one.is_cuda and len(path) > 1:
                found.tensors[path] = mark(one)
        elif type(one) not in PLAIN and id(one) not in met and (len(path) == 1 or is_small(one)):
            met[id(one)] = len(met) + 1
            for name in (*getattr(one, "__dict__", ()), *slots_of(type(one))):
                look(getattr(one, name, None), (*path, name))

    for at, one in enumerate(given):
        look(one, (at,))
    return found


def form_of(one: Any) -> Any:  # what another value must have to stand for this one
    if type(one) in PLAIN:
        return type(one) if type(one) is int else (type(one), one)
    if isinstance(one, torch.Tensor) and one.is_cuda:
        return one.dtype, one.device, one.shape, one.stride()
    if isinstance(one, (functools.partial, types.FunctionType, types.MethodType)):  # of equal layers
        return type(one), getattr(getattr(one, "func", one), "__qualname__", one)
    return type(one) if is_small(one) else id(one)


def fields_of(one: Any) -> Any:  # what must be the same in an argument of a pass that repeats another
    inside = {} if isinstance(one, torch.Tensor) else getattr(one, "__dict__", {})
    return form_of(one), [(name, form_of(two), type(two) is int and two) for name, two in inside.items()]


def is_small(one: Any) -> bool:
    """Whether an object is no more than a few attributes, so that another of its kind can stand for it."""
    if isinstance(one, _ALONE) or callable(one):
        return False
    return 0 < len(slots_of(type(one))) + len(getattr(one, "__dict__", ())) <= FEW


def get(given: Sequence[Any], path: Path) -> Any:
    return functools.reduce(lambda owner, name: getattr(owner, name, None), path[1:], given[path[0]])


def put(given: Sequence[Any], path: Path, value: Any) -> None:
    owner, last = get(given, path[:-1]), path[-1]
    if last in getattr(owner, "__dict__", ()):
        owner.__dict__[last] = value
    else:  # the slot of an object that may be frozen
        getattr(type(owner), last).__set__(owner, value)


def mark(tensor: Any) -> tuple[Any, ...]:  # where it lies, and its form
    return int(tensor.untyped_storage().data_ptr()), tensor.storage_offset(), form_of(tensor)
