"""Which bytes of device memory hold what a real GPU would have computed."""

from __future__ import annotations

from typing import Any

from runtime.ghost.inside.library import library


def forget(value: Any) -> None:
    """A kernel that did not run may have written here: what is left is not real."""
    if getattr(value, "is_cuda", False):
        at, size = extent(value)
        if size:
            library().mark(at, size, 0)
        return
    inner = getattr(value, "base", None)  # a tensor descriptor, whose base is the tensor
    if getattr(inner, "is_cuda", False):
        forget(inner)
    elif isinstance(value, (tuple, list)):
        for one in value:
            forget(one)


def extent(tensor: Any) -> tuple[int, int]:
    """The first byte of a tensor, and how many lie between its first and its last one."""
    if tensor.is_contiguous():
        return tensor.data_ptr(), tensor.nbytes
    if not tensor.numel():
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()
