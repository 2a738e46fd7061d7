"""A predicted out-of-memory error, with torch's words and numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from runtime.server.units import GIB, KIB, MIB


@dataclass(frozen=True, slots=True)
class MemoryState:
    total: int
    free: int
    allocated: int
    reserved: int
    cached_in_private_pools: int = 0


class SimulatedOutOfMemory(torch.OutOfMemoryError):
    """A subclass of torch's own error; `tried` is the segment's size, as torch prints it."""

    def __init__(self, tried: int, state: MemoryState, device: int = 0) -> None:
        super().__init__(message(tried, state, device))
        self.tried = tried
        self.state = state


def message(tried: int, state: MemoryState, device: int = 0) -> str:
    # torch counts the cached blocks of graph pools as allocated, because nothing else can use them.
    used = state.total - state.free
    in_use = state.allocated + state.cached_in_private_pools
    private = ""
    if state.cached_in_private_pools:
        size = format_size(state.cached_in_private_pools)
        private = f"with {size} allocated in private pools (e.g., CUDA Graphs), "
    return (
        f"CUDA out of memory. Tried to allocate {format_size(tried)}. GPU {device} has a total capacity of "
        f"{format_size(state.total)} of which {format_size(state.free)} is free. "
        f"Including non-PyTorch memory, this process has {format_size(used)} memory in use. "
        f"Of the allocated memory {format_size(in_use)} is allocated by PyTorch, {private}and "
        f"{format_size(state.reserved - in_use)} is reserved by PyTorch but unallocated. "
        "If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )


def format_size(nbytes: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes > unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} bytes"
