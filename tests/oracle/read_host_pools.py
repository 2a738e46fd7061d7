"""What a release keeps of a pool in the host's memory, and on the GPU to move it: SGLang's own classes.

Runs in the oracle's interpreter. Reads cases as read_any_pools.py does. Nothing of the host's is allocated:
what is told is how much would be mapped for the GPU.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

from tests.oracle.inside import enter, keep_output
from tests.oracle.read_any_pools import USUAL, in_a_fork, made_by, rank_of, served, where_it_ends
from tests.oracle.read_pools import tensors_of

_TREE, _STACKS = (
    "sglang.srt.mem_cache.hiradix_cache",
    "sglang.srt.mem_cache.hybrid_cache.hybrid_pool_assembler",
)
_CHOICE = "sglang.srt.mem_cache.registry"
_KERNELS = ("sglang.kernels.ops.kvcache.hicache", "sglang.jit_kernel.hicache")
_MODULES = ("_jit_hicache_module", "_jit_hicache_staged_module")
_POOLS = "sglang.srt.mem_cache.pool_host.common", "sglang.srt.mem_cache.memory_pool_host"
_ENOUGH = 1 << 60


class _Made(Exception):
    """With the pools that a controller is given."""


def main() -> None:
    enter()
    out = keep_output()
    _answer(USUAL)  # whatever an answer imports, imported before the forks
    for line in sys.stdin:
        print(json.dumps(in_a_fork(_answer, json.loads(line))), file=out, flush=True)


def _answer(case: dict[str, Any]) -> dict[str, Any]:
    try:
        return _asked(case)
    except BaseException as error:
        return where_it_ends(error)


def _asked(case: dict[str, Any]) -> dict[str, Any]:
    from sglang.srt.configs.model_config import ModelConfig

    with served(case) as args:
        rank = rank_of(case, args, ModelConfig.from_server_args(args))
        _, made = made_by(rank)
        with _without_host() as mapped:
            pool, *beside = _host_pools(made, rank, args)
    own: set[int] = set()
    list(tensors_of(made.token_to_kv_pool, own))
    return {
        "tokens": pool.size,
        "page": pool.page_size,
        "mapped": sum(size for _, size in mapped.registered),
        "held": sum(
            _storage(one).nbytes() for one in tensors_of([pool, *beside], own) if mapped.is_on_gpu(one)
        ),
        "layout": pool.layout,
        "class": type(pool).__name__,
    }


def _host_pools(made: Any, rank: Any, args: Any) -> Any:
    """The first tells how many tokens."""
    pool, allocator = made.token_to_kv_pool, made.token_to_kv_pool_allocator
    params = MagicMock(
        token_to_kv_pool_allocator=allocator, req_to_token_pool=made.req_to_token_pool, enable_metrics=False,
        page_size=rank.page_size, mtp_draft_device_pools=(), pp_rank=0, pp_size=1,
    )  # fmt: skip
    try:
        _tree(pool, params, args) if _has_own_tree(pool) else _stack(pool, params, args)
    except _Made as found:
        return found.args[0]
    raise LookupError("no controller was made")


def _has_own_tree(pool: Any) -> bool:
    """Of pools that are one: until 0.5.18. Of sparse attention's latents: until 0.5.15."""
    try:
        code = inspect.getsource(importlib.import_module(_CHOICE))
    except ImportError:
        return True
    if type(pool).__name__ == "SWAKVPool":
        return False
    is_sparse = type(pool).__name__ in ("DSATokenToKVPool", "NSATokenToKVPool")
    return "HiRadixCache(" in code and not (is_sparse and "ctx.is_dsa" in code)


def _made(_: Any, pool: Any, *args: Any, **told: Any) -> None:
    if not hasattr(pool, "anchor_entry"):
        raise _Made([pool])
    others = [one.host_pool for one in pool.entries if one is not pool.anchor_entry]
    raise _Made([pool.anchor_entry.host_pool, *others])


def _tree(pool: Any, params: Any, args: Any) -> None:
    module = importlib.import_module(_TREE)
    stacks = importlib.import_module(_STACKS)
    own = patch.object(module, "HiCacheController", _made)
    with own, patch.object(stacks, "HybridCacheController", _made):
        tree = object.__new__(module.HiRadixCache)
        tree._parse_storage_backend_extra_config = lambda _: (None, 0, None, False)
        module.HiRadixCache.__init__(tree, params, args)


def _stack(pool: Any, params: Any, args: Any) -> None:
    module = importlib.import_module(_STACKS)
    kinds = module.ComponentType
    parts = {kinds.FULL, kinds.SWA} if type(pool).__name__ == "SWAKVPool" else {kinds.FULL}
    strategy = module._select_strategy(pool, parts)
    told = {
        "cache": MagicMock(page_size=params.page_size), "kvcache": pool, "params": params,
        "server_args": args, "load_cache_event": None, "storage_backend": None,
    }  # fmt: skip
    with patch.object(module, "HybridCacheController", _made):
        strategy.build(**told)


class _Mapped:
    """What would be the host's, and is mapped."""

    def __init__(self) -> None:
        self.registered: list[tuple[int, int]] = []
        self._of_host: set[int] = set()

    def allocate(self, dims: Any, dtype: Any) -> Any:
        import torch

        made = torch.empty(dims, dtype=dtype, device="meta")
        self._of_host.add(_storage(made)._cdata)
        return made

    def register(self, pointer: int, size: int, _: int) -> int:
        self.registered.append((pointer, size))
        return 0

    def is_on_gpu(self, one: Any) -> bool:
        return _storage(one)._cdata not in self._of_host


def _storage(one: Any) -> Any:
    return one.untyped_storage()


@contextmanager
def _without_host() -> Iterator[_Mapped]:
    import psutil
    import torch

    mapped = _Mapped()
    module = next(filter(None, map(_found, _POOLS)))
    for kernels in filter(None, map(_found, _KERNELS)):
        for name in _MODULES:
            setattr(kernels, name, MagicMock())
    base = _found("sglang.srt.mem_cache.pool_host.base")
    if hasattr(base, "available_host_memory_bytes"):
        base.available_host_memory_bytes = lambda **_: _ENOUGH
    torch.cuda.cudart = lambda: SimpleNamespace(cudaHostRegister=mapped.register)
    torch.distributed.get_world_size = lambda **_: 1
    there = SimpleNamespace(available=_ENOUGH, total=_ENOUGH)

    def allocate(_: Any, dims: Any, dtype: Any, device: Any) -> Any:
        return mapped.allocate(dims, dtype)

    allocated = patch.object(module.HostTensorAllocator, "allocate", allocate)
    with allocated, patch.object(psutil, "virtual_memory", lambda: there):
        yield mapped


def _found(name: str) -> Any:
    with suppress(ImportError):
        return importlib.import_module(name)
    return None


if __name__ == "__main__":
    main()
