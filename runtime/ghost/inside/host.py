"""Repeats small operations on the CPU, on the bytes of the ghost's device memory."""

import ctypes
import mmap
from typing import Any

import torch

from runtime.ghost.inside.library import REAL, library
from runtime.ghost.inside.values import extent

# Sizes, lengths and indices are integers; only a few floats decide anything.
INTEGERS = 1 << 22
FLOATS = 256
READ = 1 << 20
FAILED = object()
CPU = torch.device("cpu")
FEW_PAGES = 16
_madvise = ctypes.CDLL(None, use_errno=True).madvise


def is_small(tensor: Any) -> bool:
    """Whether a tensor is small enough to keep its values."""
    numbers = tensor.numel()
    if numbers <= FLOATS:
        return True
    dtype = tensor.dtype
    return numbers <= INTEGERS and not dtype.is_floating_point and not dtype.is_complex


def is_real(tensor: Any, held: bool = False) -> bool:
    """Whether every element on the device has the value that a real GPU would have computed. `held`: or had
    it until unknown host code may have changed it."""
    ask = library().held if held else library().marked
    if tensor.is_contiguous():
        size = tensor.nbytes
        return not size or bool(ask(tensor.data_ptr(), size))
    at, size = extent(tensor)
    if not size or ask(at, size):
        return True
    return tensor.numel() <= FLOATS and all(ask(one, tensor.element_size()) for one in _addresses(tensor))


def all_real(given: list[Any], held: bool = False) -> bool:
    """Whether the CPU can repeat an operation: its tensors are small, and device tensors hold values."""
    return all(map(is_small, given)) and all(is_real(one, held) for one in given if one.is_cuda)


def over(tensor: Any) -> Any:
    """Return a CPU tensor over the bytes of a tensor on the device."""
    if not tensor.is_cuda:
        return tensor
    at, size = extent(tensor)
    if not size:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    raw = torch.frombuffer((ctypes.c_char * size).from_address(at), dtype=torch.uint8)
    if tensor.dtype is torch.uint8:
        return raw.as_strided(tensor.shape, tensor.stride())
    return raw.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())


def zero(at: int, size: int) -> None:
    """Fill device memory with zeros; return whole pages to the system instead of writing them."""
    page = mmap.PAGESIZE
    first, last = -(-at // page) * page, (at + size) // page * page
    if last - first < FEW_PAGES * page:
        ctypes.memset(at, 0, size)
        return
    ctypes.memset(at, 0, first - at)
    ctypes.memset(last, 0, at + size - last)
    if _madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), mmap.MADV_DONTNEED):
        raise OSError(ctypes.get_errno(), "device memory of the ghost could not be emptied")


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    """Return an operation's result on the CPU, with its changes made in place; FAILED if the CPU cannot."""
    try:
        return func(*[_moved(one) for one in args], **{name: _moved(one) for name, one in kwargs.items()})
    except Exception:
        return FAILED


def _moved(one: Any) -> Any:
    if isinstance(one, torch.Tensor):
        return over(one)
    if isinstance(one, torch.device):
        return CPU
    if isinstance(one, (list, tuple)):
        return type(one)(_moved(inner) for inner in one) if type(one) in (list, tuple) else one
    return one


def settle(plan: Any, out: Any, computed: Any, args: Any, kwargs: Any, mark: int) -> bool:
    """Write the computed values into the ghost's result, and mark the result and changed tensors."""
    for at, name in plan.written:
        changed = args[at] if at < len(args) else kwargs.get(name)
        if isinstance(changed, torch.Tensor) and changed.is_cuda:
            mark_elements(changed, mark)
    if not plan.returns_fresh:
        return True
    outs, values = _flat(out), _flat(computed)
    if len(outs) != len(values):
        return False
    for one, value in zip(outs, values, strict=True):
        if not one.is_cuda:
            continue
        if one.shape != value.shape or one.dtype != value.dtype:
            return False
        over(one).copy_(value)
        mark_elements(one, mark)
    return True


def _flat(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [inner for one in value for inner in _flat(one)]
    return []


def mark_elements(tensor: Any, mark: int = REAL) -> None:
    """Mark the bytes of each element, but not the gaps between elements."""
    if tensor.is_contiguous():
        library().mark(tensor.data_ptr(), tensor.nbytes, mark)
        return
    for at in _addresses(tensor):
        library().mark(at, tensor.element_size(), mark)


def _addresses(tensor: Any) -> list[int]:
    offsets = [0]
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        offsets = [one + step * stride for one in offsets for step in range(size)]
    return [tensor.data_ptr() + one * tensor.element_size() for one in offsets]


def on_device(computed: Any, device: Any) -> Any:
    """Return tensors on the device that hold the computed values."""
    if isinstance(computed, torch.Tensor):
        made = torch.empty_strided(computed.shape, computed.stride(), dtype=computed.dtype, device=device)
        if made.numel():
            over(made).copy_(computed)
            mark_elements(made)
        return made
    return type(computed)(on_device(one, device) for one in computed)


def without_masks(indices: Any) -> list[Any]:
    """Return the indices, with each known mask replaced by the positions that it selects."""
    found: list[Any] = []
    for one in indices:
        if (
            one is None
            or one.dtype not in (torch.bool, torch.uint8)
            or not one.is_cuda
            or not all_real([one])
        ):
            found.append(one)
            continue
        found.extend(on_device(position, one.device) for position in over(one).nonzero().unbind(1))
    return found


def read_unreal(out: Any) -> None:
    """Zero a result that was read from unreal memory, so that no size depends on leftover bytes."""
    if out.nbytes <= READ:
        out.zero_()
