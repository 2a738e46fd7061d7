"""Passes every storage that torch ops make on one device to the allocator model, for as long as it lives.

A dispatch mode sees each op's new outputs; a weak reference frees a storage's bytes the moment torch would.
Works on meta tensors (a prediction: nothing is allocated) and on CPU tensors.
"""

from __future__ import annotations

import heapq
import sys
import weakref
from collections.abc import Sequence
from contextvars import Token
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runtime.simulate.allocation import Allocation, Step
from runtime.simulate.allocator import CachingAllocator
from runtime.simulate.frames import innermost_runtime_frame
from runtime.simulate.kernel import Kernel, Watcher, watcher
from runtime.simulate.tensors import tensors_of

# torch allocates one workspace per stream that runs a GEMM, and keeps it.
GEMMS = frozenset(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "_scaled_mm"))


@dataclass(frozen=True, slots=True)
class OpTraits:
    """An op. `fresh`: a result has a storage of its own; `launches`: something runs on the device."""

    name: str
    fresh: bool
    launches: bool
    composite: bool


def _describe(func: Any) -> OpTraits:
    schema = func._schema
    # `torch.tensor` makes its storage unseen, and this is the only op that shows it.
    shown = schema.name == "aten::lift_fresh"
    fresh = any(result.alias_info is None for result in schema.returns)
    aliases = [one.alias_info for one in (*schema.arguments, *schema.returns) if one.alias_info is not None]
    writes = any(alias.is_write for alias in aliases)
    name = schema.name.removeprefix("aten::")
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return OpTraits(
        name=name,
        fresh=fresh or shown,
        launches=(fresh or writes) and "empty" not in name,
        composite=func.has_kernel_for_dispatch_key(key),
    )


class _StorageRef(weakref.ref[Any]):
    __slots__ = ("key",)

    key: int


class AllocationTracker(TorchDispatchMode):
    """A context manager that counts allocations. `gemm_bytes` is torch's cuBLAS workspace on the GPU; with
    `log` every allocation is kept."""

    def __init__(
        self, allocator: CachingAllocator, device_type: str, gemm_bytes: int = 0, log: bool = False
    ) -> None:
        super().__init__()
        self.allocator = allocator
        self.stream = 0
        self.phase = ""
        self.log: list[Allocation] | None = [] if log else None
        self.recording: list[Step] | None = None
        self.kernels = 0  # ops of a graph that launch something, repeated layers included
        self._device_type = device_type
        self._gemm_bytes, self._gemm_streams = gemm_bytes, set[int]()
        self._in_kernel = False
        self._unwatched: list[Token[Watcher | None]] = []
        self._stored: dict[int, tuple[_StorageRef, Allocation]] = {}
        self._live: set[Allocation] = set()
        self._sequence = 0
        self._peak = self._peak_sequence = self._reset_sequence = 0
        self._freed_since_peak: list[Allocation] = []
        self._ops: dict[Any, OpTraits] = {}

    # -- torch's side ---------------------------------------------------------------------------------------

    def __enter__(self) -> AllocationTracker:
        self._unwatched.append(watcher.set(self._run_kernel))
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        watcher.reset(self._unwatched.pop())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise the first op imports torch's compiler, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._in_kernel:
            return func(*args, **(kwargs or {}))
        op = self._ops.get(func)
        if op is None:
            op = self._ops[func] = _describe(func)
        if op.composite and torch.is_inference_mode_enabled():
            # In other modes autograd has decomposed it already: a reshape that copies would look like a view.
            with self:
                return func.decompose(*args, **(kwargs or {}))
        out = func(*args, **kwargs) if kwargs else func(*args)
        self.kernels += op.launches
        if op.fresh:
            self._track_all(out, op.name)
        if op.name in GEMMS and self._gemm_bytes and self.stream not in self._gemm_streams:
            self._gemm_streams.add(self.stream)
            self._new(self._gemm_bytes, f"{op.name} workspace", (self._gemm_bytes,), "uint8")
        return out

    def _run_kernel(self, kernel: Kernel, args: tuple[Any, ...]) -> Any:
        if self._in_kernel:
            return kernel.compute(args)
        self._in_kernel = True
        try:
            out = kernel.compute(args)
        finally:
            self._in_kernel = False
        name = kernel.run.__name__
        self.kernels += kernel.launches
        self._track_all(out, name)
        sizes = kernel.meanwhile(*args)
        for held in [self._new(nbytes, f"{name} workspace", (nbytes,), "uint8") for nbytes in sizes]:
            self.free(held)
        return out

    def _track_all(self, out: Any, op: str) -> None:
        for tensor in tensors_of(out):
            self._track(tensor, op)

    def _track(self, tensor: torch.Tensor, op: str) -> None:
        storage = tensor.untyped_storage()
        nbytes = storage.nbytes()
        if tensor.device.type != self._device_type or storage._cdata in self._stored or not nbytes:
            return
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.adopt(tensor, self._new(nbytes, op, tuple(tensor.shape), dtype))

    def _storage_died(self, reference: _StorageRef) -> None:
        stored = self._stored.pop(reference.key, None)
        if stored is not None:
            self.free(stored[1])

    # -- the allocator's side -------------------------------------------------------------------------------

    def _new(self, nbytes: int, op: str, shape: tuple[int, ...], dtype: str) -> Allocation:
        allocation = Allocation(nbytes, op, shape, dtype)
        frame = innermost_runtime_frame(sys._getframe(2))
        if frame is not None:
            allocation.code, allocation.line = frame.f_code, frame.f_lineno
        self.allocate(allocation)
        return allocation

    def allocate(self, allocation: Allocation) -> None:
        allocation.phase = self.phase
        allocation.block = self.allocator.malloc(allocation.nbytes, self.stream)
        self._sequence += 1
        allocation.sequence = self._sequence
        self._live.add(allocation)
        if self.allocator.allocated > self._peak:
            self._peak = self.allocator.allocated
            self._peak_sequence = self._sequence
            self._freed_since_peak.clear()
        if self.log is not None:
            self.log.append(allocation)
        if self.recording is not None:
            self.recording.append((True, allocation))

    def free(self, allocation: Allocation) -> None:
        self.allocator.free(allocation.block)
        self._live.discard(allocation)
        if allocation.sequence <= self._peak_sequence:
            self._freed_since_peak.append(allocation)
        if self.recording is not None:
            self.recording.append((False, allocation))

    # -- reading --------------------------------------------------------------------------------------------

    def reset_peak(self) -> None:
        self.allocator.reset_peaks()
        self._peak = self.allocator.allocated
        self._peak_sequence = self._reset_sequence = self._sequence
        self._freed_since_peak.clear()

    def largest_at_peak(self, count: int) -> list[Allocation]:
        """Allocations since `reset_peak` that were live when `allocated` was highest, largest first."""
        alive = (a for a in self._live if a.sequence <= self._peak_sequence)
        made = [a for a in (*alive, *self._freed_since_peak) if a.sequence > self._reset_sequence]
        return heapq.nlargest(count, made, key=lambda a: (a.nbytes, -a.sequence))

    def allocation_of(self, tensor: torch.Tensor) -> Allocation | None:
        stored = self._stored.get(tensor.untyped_storage()._cdata)
        return stored[1] if stored else None

    def forget(self, tensor: torch.Tensor) -> None:
        """Free the allocation of `tensor`'s storage, although the tensor lives on."""
        _, allocation = self._stored.pop(tensor.untyped_storage()._cdata)
        self.free(allocation)

    def adopt(self, tensor: torch.Tensor, allocation: Allocation) -> None:
        """Tie `allocation` to the storage of a tensor: it is freed with the storage."""
        storage = tensor.untyped_storage()
        reference = _StorageRef(storage, self._storage_died)
        reference.key = storage._cdata
        self._stored[reference.key] = (reference, allocation)
