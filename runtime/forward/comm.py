"""Collectives over a rank's groups, either for one virtual rank without peers or among real processes.

The caller allocates every buffer, so that a virtual rank and a real one make the same allocations. In a group
of one rank nothing is exchanged.
"""

from typing import TypeVar

import torch
import torch.distributed as dist

from runtime.server.errors import ConfigError
from runtime.server.parallel import GROUP_NAMES, ParallelConfig, RankLayout, rank_layout

_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Number = TypeVar("Number", int, float)


class Communicator:
    """Collectives of one process that stands for any rank: peers have equal data and add nothing to sums."""

    def __init__(self, layout: RankLayout) -> None:
        self.layout = layout

    def size(self, group: str) -> int:
        return len(self.layout.group(group))

    def rank(self, group: str) -> int:
        return self.layout.group(group).index(self.layout.rank)

    def all_reduce(self, x: torch.Tensor, group: str) -> torch.Tensor:
        """Sum `x` over the group, in place."""
        return x

    def all_gather_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        """Fill `out` [n * rows, ...] with every rank's `x` [rows, ...], in rank order."""
        self._check_sizes("all_gather_into", large=out, small=x, group=group)
        out.view(self.size(group), *x.shape).copy_(x)

    def reduce_scatter_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        """Fill `out` [rows, ...] with this rank's part of the sum of every rank's `x` [n * rows, ...]."""
        self._check_sizes("reduce_scatter_into", large=x, small=out, group=group)
        out.copy_(x.view(self.size(group), *out.shape)[self.rank(group)])

    def all_to_all_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        """Send part i of `x` to rank i, receive part i of `out` from it. Equal parts along dim 0."""
        out.copy_(x)

    def send_next(self, x: torch.Tensor) -> None:
        """Send `x` to the next pipeline stage."""

    def receive_previous(self, x: torch.Tensor) -> torch.Tensor:
        """Receive `x` from the previous stage: here random rows, as equal ones would get equal experts."""
        return x.normal_() if self.layout.pp_rank else x

    def min_over(self, value: Number, group: str = "world") -> Number:
        """Return the smallest value in the group. Uses CPU tensors, so that no device memory is touched."""
        kind = type(value)
        dtype = torch.int64 if kind is int else torch.float64
        return kind(self._min(torch.tensor([value], dtype=dtype, device="cpu"), group).item())

    def _min(self, x: torch.Tensor, group: str) -> torch.Tensor:
        return x

    def barrier(self, group: str = "world") -> None:
        self.min_over(0, group)

    def _check_sizes(self, what: str, large: torch.Tensor, small: torch.Tensor, group: str) -> None:
        if large.numel() != small.numel() * self.size(group):
            raise ValueError(
                f"{what} over {group} of {self.size(group)} ranks: {tuple(large.shape)} does not hold "
                f"one {tuple(small.shape)} from each rank"
            )


class VirtualCommunicator(Communicator):
    def __init__(self, parallel: ParallelConfig, rank: int = 0) -> None:
        super().__init__(rank_layout(parallel, rank))


class DistributedCommunicator(Communicator):
    """Collectives among one process per rank, over an initialised `torch.distributed` (see `connect`)."""

    def __init__(self, parallel: ParallelConfig) -> None:
        if dist.get_world_size() != parallel.world_size:
            raise ConfigError(
                f"{dist.get_world_size()} processes joined, but --tp {parallel.tp} --pp {parallel.pp} needs "
                f"{parallel.world_size}: start one process per rank"
            )
        super().__init__(rank_layout(parallel, dist.get_rank()))
        groups = _make_groups(parallel)
        self._groups = {name: groups[self.layout.group(name)] for name in GROUP_NAMES}

    def close(self) -> None:
        dist.destroy_process_group()

    def all_reduce(self, x: torch.Tensor, group: str) -> torch.Tensor:
        if self.size(group) > 1:
            dist.all_reduce(x, group=self._groups[group])
        return x

    def all_gather_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        if self.size(group) == 1:
            return super().all_gather_into(out, x, group)
        self._check_sizes("all_gather_into", large=out, small=x, group=group)
        _all_gather(out, x, group=self._groups[group])

    def reduce_scatter_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        if self.size(group) == 1:
            return super().reduce_scatter_into(out, x, group)
        self._check_sizes("reduce_scatter_into", large=x, small=out, group=group)
        _reduce_scatter(out, x, group=self._groups[group])

    def all_to_all_into(self, out: torch.Tensor, x: torch.Tensor, group: str) -> None:
        if self.size(group) == 1:
            return super().all_to_all_into(out, x, group)
        dist.all_to_all_single(out, x, group=self._groups[group])

    def send_next(self, x: torch.Tensor) -> None:
        if (stage := self.layout.pp_rank + 1) < self.size("pp"):
            dist.send(x, self.layout.group("pp")[stage], group=self._groups["pp"])

    def receive_previous(self, x: torch.Tensor) -> torch.Tensor:
        if (stage := self.layout.pp_rank - 1) >= 0:
            dist.recv(x, self.layout.group("pp")[stage], group=self._groups["pp"])
        return x

    def _min(self, x: torch.Tensor, group: str) -> torch.Tensor:
        if self.size(group) > 1:
            dist.all_reduce(x, op=dist.ReduceOp.MIN, group=self._groups[group])
        return x


def connect(
    parallel: ParallelConfig, rank: int, init_method: str, device: torch.device
) -> DistributedCommunicator:
    """Join the processes of a deployment, with NCCL for the device's tensors and gloo for control data."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "cpu:gloo"
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=parallel.world_size)
    return DistributedCommunicator(parallel)


def _make_groups(parallel: ParallelConfig) -> dict[tuple[int, ...], dist.ProcessGroup | None]:
    """Return one process group per distinct set of ranks. All ranks must create all, in one order."""
    groups: dict[tuple[int, ...], dist.ProcessGroup | None] = {tuple(range(parallel.world_size)): None}
    for rank in range(parallel.world_size):
        for members in rank_layout(parallel, rank).groups.values():
            if members not in groups:
                groups[members] = dist.new_group(list(members)) if len(members) > 1 else None
    return groups
