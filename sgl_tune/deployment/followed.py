"""Flags that no rule reads, but for what is followed of this model on this server."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.server import adapter_pool, host_pool, offloading, placement, sparse_kernels
from runtime.server.config import ModelConfig
from runtime.server.flags.spelling import names_of
from runtime.server.shape import Server
from runtime.server.unpredicted import knows_starts

_BY_TRANSFORMERS = "--model-impl transformers"


def unfollowed(flags: Iterable[str], model: ModelConfig | None, server: Server) -> tuple[str, ...]:
    """Of its key and of memory."""
    followed = _BY_TRANSFORMERS if model is not None and model.by_transformers else ""
    said = tuple(one for one in flags if one != followed)
    if _follows_tiers(model, server):
        said = _without(said, host_pool.FLAGS, server)
    if model is not None and (server.sparse_kernels is not None or model.mla is None):
        said = _without(said, sparse_kernels.FLAGS, server)
    if model is not None and offloading.follows_offloading(model, server):
        said = _without(said, offloading.FLAGS, server)
    if model is None or not placement.follows_placement(model, server):
        return said
    return _without(said, placement.FLAGS, server)


def _follows_tiers(model: ModelConfig | None, server: Server) -> bool:
    """Flags of a cache that nobody asked for do nothing, and behind the graphs there must be a start."""
    if not host_pool.has_tiers(server):
        return True
    known = model is not None and host_pool.follows_host_cache(model, server)
    return known and model is not None and knows_starts(model, server.runtime)


def uncounted_flags(flags: tuple[str, ...], model: ModelConfig | None, server: Server) -> tuple[str, ...]:
    """Of memory alone: what a key makes of adapters stays open."""
    if model is None or not adapter_pool.follows_adapters(model, server):
        return flags
    return _without(flags, adapter_pool.FLAGS, server)


def _without(flags: tuple[str, ...], arguments: Iterable[str], server: Server) -> tuple[str, ...]:
    names = names_of(server.release, arguments)
    return tuple(one for one in flags if one.partition(" ")[0] not in names)
