"""torch's symmetric memory without peers: every peer's buffer is this rank's own."""

from __future__ import annotations

from typing import Any


def install() -> None:
    from torch._C._distributed_c10d import _SymmetricMemory as memory

    setattr(memory, "rendezvous", staticmethod(_meet))  # noqa: B010


def _meet(tensor: Any, *_: Any, **__: Any) -> _Met:
    """Return the rendezvous of a tensor; there is one, and it lives as long as the tensor."""
    met: _Met | None = getattr(tensor, "_met", None)
    if met is None:
        met = tensor._met = _Met(tensor)
    return met


class _Met:
    """The result of a rendezvous, as far as a start reads it. There is no multicast, as on some machines."""

    multicast_ptr = 0

    def __init__(self, tensor: Any) -> None:
        import torch
        import torch.distributed as dist

        self._memory = tensor.detach()  # not the tensor, which holds this: both go when the last user does
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        # torch keeps the addresses of all buffers, and those of all signal pads, on the GPU
        self._addresses = [
            torch.empty(self.world_size, dtype=torch.int64, device=tensor.device) for _ in range(2)
        ]
        self.buffer_size = tensor.numel() * tensor.element_size()
        self.buffer_ptrs = [tensor.data_ptr()] * self.world_size
        self.signal_pad_ptrs = self.buffer_ptrs

    def get_buffer(self, rank: int, sizes: Any, dtype: Any, storage_offset: int = 0) -> Any:
        import torch

        flat = self._memory.view(torch.uint8).flatten()
        begin = storage_offset * dtype.itemsize
        size = torch.Size(sizes).numel() * dtype.itemsize
        return flat[begin : begin + size].view(dtype).view(sizes)

    def get_signal_pad(self, rank: int, sizes: Any = (), dtype: Any = None, offset: int = 0) -> Any:
        import torch

        return torch.zeros(tuple(sizes) or (1,), dtype=dtype or torch.uint32, device=self._memory.device)

    def barrier(self, *_: Any, **__: Any) -> None: ...
