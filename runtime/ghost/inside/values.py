"""Which bytes of device memory hold what a real GPU would have computed."""

from typing import Any

from runtime.ghost.inside.library import UNREAL, library

PLAIN = {int, float, bool, str, type(None)}


def forget(*values: Any, mark: int = UNREAL) -> None:
    """Mark these arguments as not real, because a kernel that did not run may have written to them.
    With the mark DOUBTED they hold their values until something else is known to write to them."""
    for value in values:
        kind = value.__class__
        if kind in PLAIN:
            continue
        if kind is tuple or kind is list:
            forget(*value, mark=mark)
        elif getattr(value, "is_cuda", False):
            at, size = extent(value)
            if size:
                library().mark(at, size, mark)
        elif getattr(getattr(value, "base", None), "is_cuda", False):  # a descriptor of a tensor
            forget(value.base, mark=mark)


def extent(tensor: Any) -> tuple[int, int]:
    """Return the address of a tensor's first byte, and the bytes from it to the end of the last element."""
    if tensor.is_contiguous():
        return tensor.data_ptr(), tensor.nbytes
    if not tensor.numel():
        return tensor.data_ptr(), 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), (last + 1) * tensor.element_size()
