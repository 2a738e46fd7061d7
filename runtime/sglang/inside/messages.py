"""Messages of torch's groups: the first opens an NCCL communicator, a captured one is kept in its graph."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from runtime.ghost.inside import honesty
from runtime.ghost.inside.library import library

ALIKE = 2  # ranks of a stage whose free memory was the same within 64 KiB in 20 of 20 starts
STAGES = "the stages of a pipeline hold other layers, and the fewest free bytes of all size the KV pool"
OTHERS = "only a number of free bytes on the host is made less, as the fullest rank has it"
UNMEASURED = "the fewest free bytes of all size the KV pool, and nobody measured them for so many ranks"
NAMES = {"all_reduce", "reduce", "broadcast", "send", "recv", "isend", "irecv", "reduce_scatter_tensor"}
NAMES |= {"all_gather", "all_gather_into_tensor", "_all_gather_base", "_reduce_scatter_base"}
NAMES |= {"all_to_all_single"}


class Peers(NamedTuple):
    """Pipeline `stages`, and by number of ranks how much less the fullest has free than rank 0 (`less`)."""

    stages: int
    less: Mapping[int, int]


def install(peers: Peers) -> None:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    opened: set[int] = set()
    for name in NAMES:
        if function := getattr(c10d, name, None):
            told = _told(function, opened, peers)  # one for both: P2POp compares it
            for module in (dist, c10d):
                setattr(module, name, told)


def _told(function: Callable[..., Any], opened: set[int], peers: Peers) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        import torch.distributed as dist

        values = [*args, *kwargs.values()]
        groups = [value for value in values if isinstance(value, dist.ProcessGroup)]
        group: Any = groups[0] if groups else dist.group.WORLD
        operations = dist.ReduceOp, dist.ReduceOp.RedOpType
        if any(isinstance(value, operations) and value == dist.ReduceOp.MIN for value in values):
            _ask_peers(group.size(), peers, _tensors(values))
        if group.size() > 1 and any(tensor.is_cuda for tensor in _tensors(values)):
            if id(group) not in opened:
                opened.add(id(group))
                library().appears("communicator", group.size())
            library().appears("message")
        return function(*args, **kwargs)

    return call


def _ask_peers(ranks: int, peers: Peers, values: Iterable[Any]) -> None:
    """Correct a minimum over ranks. The least free memory sizes the KV pool; only this rank's is known."""
    if peers.stages > 1:
        honesty.inexact("peer", f"least free memory of {ranks} ranks", STAGES)
    elif ranks > ALIKE and ranks not in peers.less:
        honesty.inexact("peer", f"least free memory of {ranks} ranks", UNMEASURED)
    less = peers.less.get(ranks, max(peers.less.values(), default=0)) if ranks > ALIKE else 0
    for value in values:
        if value.is_floating_point() and not value.is_cuda:
            value.sub_(less)
        elif ranks > ALIKE:
            name = f"least {str(value.dtype).removeprefix('torch.')} of {ranks} ranks on {value.device.type}"
            honesty.inexact("peer", name, OTHERS)


def _tensors(values: Any) -> Iterator[Any]:
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list):
            yield from _tensors(value)
