"""One process as rank r of N, with torch's own fake process group; gathered objects are this rank's own."""

import copy
import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from runtime.ghost.inside.hooks import after
from runtime.sglang.inside import communicator, lone_store, messages, symmetric


def of(server: Any, rank: int) -> dict[str, Any]:
    """Return the arguments that SGLang's own launcher gives rank `rank` of tp x pp processes.

    With replicas of the server (dp without DP attention) this is the first replica; all are alike.
    """
    tp, dp = server.tp_size, server.dp_size
    tp_rank, pp_rank = rank % tp, rank // tp
    moe_dp = getattr(server, "moe_dp_size", 1) or 1
    attn_cp = getattr(server, "attn_cp_size", 1) or 1
    attn_dp = (getattr(server, "attn_dp_size", None) or dp) if server.enable_dp_attention else 1
    attn_tp = max(1, tp // attn_dp // attn_cp)
    within_moe_dp = tp_rank % (tp // moe_dp)
    per_node = max(1, tp * server.pp_size // server.nnodes)
    return {
        "gpu_id": server.base_gpu_id + rank % per_node * server.gpu_id_step,
        "tp_rank": tp_rank,
        "pp_rank": pp_rank,
        "dp_rank": tp_rank // (attn_tp * attn_cp) if server.enable_dp_attention else 0 if dp > 1 else None,
        "attn_cp_rank": (tp_rank // attn_tp) % attn_cp,
        "moe_dp_rank": tp_rank // (tp // moe_dp),
        "moe_ep_rank": within_moe_dp // (tp // moe_dp // server.ep_size),
    }


def install(server: Any, less_free: Mapping[int, int]) -> None:
    """Make this process a rank of a world without other processes; see `messages.Peers` for `less_free`."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    if server.tp_size * server.pp_size == 1:
        dist.barrier = c10d.barrier = _without_waiting(c10d.barrier, c10d)
        return
    import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend
    alone = _Alone(dist, c10d, server.tp_size * server.pp_size)
    for module in (dist, c10d):
        for name, function in alone.functions().items():
            setattr(module, name, function)
    messages.install(messages.Peers(server.pp_size, less_free))
    _answer_own_messages()
    symmetric.install()
    communicator.install()


def _without_waiting(barrier: Callable[..., Any], c10d: Any) -> Callable[..., Any]:
    """Skip the barrier of a group with one rank on the host. One on a GPU stays, as it may take memory."""

    @functools.wraps(barrier)
    def alone(group: Any = None, async_op: bool = False, **named: Any) -> Any:
        if group is not None and not async_op and group.size() == 1 and c10d.get_backend(group) == "gloo":
            return None
        return barrier(group, async_op, **named)

    return alone


class _Alone:
    """torch.distributed's functions, with this rank's values in place of all peers' values."""

    def __init__(self, dist: Any, c10d: Any, world: int) -> None:
        self._c10d, self._world = c10d, world
        self._init, self._new_group = dist.init_process_group, dist.new_group
        self._backends: dict[int, str] = {}

    def functions(self) -> dict[str, Callable[..., Any]]:
        nothing = lambda *args, **kwargs: None  # noqa: E731
        return {
            "init_process_group": self.init_process_group,
            "new_group": self.new_group,
            "get_backend": self.get_backend,
            "all_gather_object": self.all_gather_object,
            "gather_object": self.gather_object,
            "scatter_object_list": self.scatter_object_list,
            "broadcast_object_list": nothing,
            "barrier": nothing,
            "monitored_barrier": nothing,
            "all_gather": self.all_gather,
            "all_gather_into_tensor": self.all_gather_into_tensor,
            "_all_gather_base": self.all_gather_into_tensor,
        }

    def init_process_group(
        self, backend: str | None = None, *, world_size: int = -1, rank: int = -1, **_: Any
    ) -> None:
        self._init(backend="fake", rank=rank, world_size=world_size, store=lone_store.make(self._world))
        self._backends[id(self._c10d._get_default_group())] = backend or "nccl"

    def new_group(self, ranks: Any = None, timeout: Any = None, backend: str | None = None, **_: Any) -> Any:
        group = self._new_group(ranks=ranks, backend="fake")
        self._backends[id(group)] = backend or "nccl"
        return group

    def get_backend(self, group: Any = None) -> str:
        name = self._backends.get(id(group or self._c10d._get_default_group()), "nccl")
        return name.rsplit(",", 1)[-1].rsplit(":", 1)[-1]

    def all_gather_object(self, into: list[Any], mine: Any, group: Any = None) -> None:
        for place in range(len(into)):
            into[place] = mine if callable(mine) else copy.deepcopy(mine)

    def gather_object(self, mine: Any, into: list[Any] | None = None, *_: Any, **named: Any) -> None:
        into = named.get("object_gather_list", into)
        if into is not None:
            self.all_gather_object(into, mine)

    def scatter_object_list(self, out: list[Any], given: list[Any] | None = None, *_: Any, **__: Any) -> None:
        if given:
            out[0] = given[0]

    def all_gather(self, into: list[Any], mine: Any, group: Any = None, async_op: bool = False) -> None:
        for tensor in into:
            tensor.copy_(mine)

    def all_gather_into_tensor(self, into: Any, mine: Any, group: Any = None, async_op: bool = False) -> None:
        if not mine.is_cuda:
            into.view(-1, max(1, mine.numel()))[:] = mine.reshape(1, -1)


def _answer_own_messages() -> None:
    """Disable SGLang's own channels between ranks, on which nobody answers."""

    @after("sglang.srt.distributed.device_communicators.shm_broadcast")
    def _(module: Any) -> None:
        module.MessageQueue.wait_until_ready = lambda self: None
        module.MessageQueue.create_from_process_group = staticmethod(lambda *args, **kwargs: None)

    @after("sglang.srt.distributed.parallel_state")
    def _(module: Any) -> None:
        if hasattr(module, "in_the_same_node_as"):
            module.in_the_same_node_as = lambda group, *_, **__: (
                [True] * module.torch.distributed.get_world_size(group)
            )

    for name, module in list(sys.modules.items()):
        if name.startswith("sglang") and hasattr(module, "broadcast_pyobj"):
            setattr(module, "broadcast_pyobj", lambda data, *args, **kwargs: data)  # noqa: B010
