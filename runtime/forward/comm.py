"""Collectives over a rank's groups: among real processes, or for one virtual rank with arithmetic for peers.

The caller allocates every buffer, so a virtual rank and a real one make the same allocations by construction.
A group of one does nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

import torch
import torch.distributed as dist

from runtime.server.errors import ConfigError
from runtime.server.parallel import GROUP_NAMES, RankLayout, rank_layout
from runtime.server.parallel_config import ParallelConfig

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Number = TypeVar("Number", int, float)


class Communicator(ABC):
    def __init__(self, layout: RankLayout) -> None:
        self.layout = layout

    def size(self, group: str) -> int:
        return len(self.layout.group(group))

    def rank(self, group: str) -> int:
        return self.layout.group(group).index(self.layout.rank)

    def all_reduce(self, x: torch.Tensor, group: str) -> torch.Tensor:
        """Sum over the group, in place."""
        if self.size(group) > 1:
            self._all_reduce(x, group)
        return x

    def all_gather_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        """`out` [n * rows, ...] becomes every rank's `x` [rows, ...], in rank order."""
        self._check_sizes("all_gather_into", large=out, small=x, group=group)
        self._all_gather_into(out, x, group) if self.size(group) > 1 else out.copy_(x)

    def reduce_scatter_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        """`out` [rows, ...] becomes this rank's part of the sum of every rank's `x` [n * rows, ...]."""
        self._check_sizes("reduce_scatter_into", large=x, small=out, group=group)
        self._reduce_scatter_into(out, x, group) if self.size(group) > 1 else out.copy_(x)

    def all_to_all_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        """Part i of `x` goes to rank i; part i of `out` comes from rank i. Equal parts along dim 0."""
        self._all_to_all_into(out, x, group) if self.size(group) > 1 else out.copy_(x)

    def send_next(self, x: torch.Tensor) -> None:
        """To the next pipeline stage."""
        if self.layout.pp_rank + 1 < self.size("pp"):
            self._send_next(x)

    def receive_previous(self, x: torch.Tensor) -> torch.Tensor:
        """From the previous pipeline stage, into `x`."""
        if self.layout.pp_rank > 0:
            self._receive_previous(x)
        return x

    def min_over(self, value: Number, group: str = "world") -> Number:
        """Control data: over CPU tensors, so that no device memory is touched."""
        kind = type(value)
        dtype = torch.int64 if kind is int else torch.float64
        held = torch.tensor([value], dtype=dtype, device="cpu")
        if self.size(group) > 1:
            self._min(held, group)
        return kind(held.item())

    def barrier(self, group: str = "world") -> None:
        self.min_over(0, group)

    def _check_sizes(self, what: str, large: torch.Tensor, small: torch.Tensor, group: str) -> None:
        if large.numel() != small.numel() * self.size(group):
            raise ValueError(
                f"{what} over {group} of {self.size(group)} ranks: {tuple(large.shape)} does not hold "
                f"one {tuple(small.shape)} from each rank"
            )

    @abstractmethod
    def _all_reduce(self, x: torch.Tensor, group: str) -> None: ...
    @abstractmethod
    def _all_gather_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None: ...
    @abstractmethod
    def _reduce_scatter_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None: ...
    @abstractmethod
    def _all_to_all_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None: ...
    @abstractmethod
    def _send_next(self, x: torch.Tensor) -> None: ...
    @abstractmethod
    def _receive_previous(self, x: torch.Tensor) -> None: ...
    @abstractmethod
    def _min(self, x: torch.Tensor, group: str) -> None: ...


class VirtualCommunicator(Communicator):
    """One process stands for any rank: peers hold what this rank holds, and add nothing to a sum."""

    def __init__(self, parallel: ParallelConfig, rank: int = 0) -> None:
        super().__init__(rank_layout(parallel, rank))

    def _all_reduce(self, x: torch.Tensor, group: str) -> None:
        pass

    def _all_gather_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        out.view(self.size(group), *x.shape).copy_(x)

    def _reduce_scatter_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        out.copy_(x.view(self.size(group), *out.shape)[self.rank(group)])

    def _all_to_all_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        out.copy_(x)

    def _send_next(self, x: torch.Tensor) -> None:
        pass

    def _receive_previous(self, x: torch.Tensor) -> None:
        # Uneven on purpose: equal rows would all be routed to the same experts.
        x.normal_()

    def _min(self, x: torch.Tensor, group: str) -> None:
        pass


class DistributedCommunicator(Communicator):
    """One process per rank, over an initialised `torch.distributed` (see `connect`)."""

    def __init__(self, parallel: ParallelConfig) -> None:
        if dist.get_world_size() != parallel.world_size:
            raise ConfigError(
                f"{dist.get_world_size()} processes joined, but --tp {parallel.tp} --pp {parallel.pp} needs "
                f"{parallel.world_size}: start one process a rank"
            )
        super().__init__(rank_layout(parallel, dist.get_rank()))
        groups = _make_groups(parallel)
        self._groups = {name: groups[self.layout.group(name)] for name in GROUP_NAMES}

    def close(self) -> None:
        dist.destroy_process_group()

    def _all_reduce(self, x: torch.Tensor, group: str) -> None:
        dist.all_reduce(x, group=self._groups[group])

    def _all_gather_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        _all_gather(out, x, group=self._groups[group])

    def _reduce_scatter_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        _reduce_scatter(out, x, group=self._groups[group])

    def _all_to_all_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        dist.all_to_all_single(out, x, group=self._groups[group])

    def _send_next(self, x: torch.Tensor) -> None:
        dist.send(x, self.layout.group("pp")[self.layout.pp_rank + 1], group=self._groups["pp"])

    def _receive_previous(self, x: torch.Tensor) -> None:
        dist.recv(x, self.layout.group("pp")[self.layout.pp_rank - 1], group=self._groups["pp"])

    def _min(self, x: torch.Tensor, group: str) -> None:
        dist.all_reduce(x, op=dist.ReduceOp.MIN, group=self._groups[group])


def connect(
    parallel: ParallelConfig, rank: int, init_method: str, device: torch.device
) -> DistributedCommunicator:
    """Join the processes of a deployment: NCCL for the device's tensors, gloo for control data."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "cpu:gloo"
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=parallel.world_size)
    return DistributedCommunicator(parallel)


def _make_groups(parallel: ParallelConfig) -> dict[tuple[int, ...], dist.ProcessGroup | None]:
    """One process group for each distinct set of ranks; every rank must make them all, in one order."""
    groups: dict[tuple[int, ...], dist.ProcessGroup | None] = {tuple(range(parallel.world_size)): None}
    for rank in range(parallel.world_size):
        for members in rank_layout(parallel, rank).groups.values():
            if members not in groups:
                groups[members] = dist.new_group(list(members)) if len(members) > 1 else None
    return groups
