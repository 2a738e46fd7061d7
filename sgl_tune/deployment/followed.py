"""Flags that no rule reads, but for what is followed of this model on this server."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.server import adapter_pool, placement
from runtime.server.config import ModelConfig
from runtime.server.flags.spelling import names_of
from runtime.server.shape import Server

_BY_TRANSFORMERS = "--model-impl transformers"


def unfollowed(flags: Iterable[str], model: ModelConfig | None, server: Server) -> tuple[str, ...]:
    """Of its key and of memory."""
    followed = _BY_TRANSFORMERS if model is not None and model.by_transformers else ""
    said = tuple(one for one in flags if one != followed)
    if model is None or not placement.follows_placement(model, server):
        return said
    return _without(said, placement.FLAGS, server)


def uncounted_flags(flags: tuple[str, ...], model: ModelConfig | None, server: Server) -> tuple[str, ...]:
    """Of memory alone: what a key makes of adapters stays open."""
    if model is None or not adapter_pool.follows_adapters(model, server):
        return flags
    return _without(flags, adapter_pool.FLAGS, server)


def _without(flags: tuple[str, ...], arguments: Iterable[str], server: Server) -> tuple[str, ...]:
    names = names_of(server.release, arguments)
    return tuple(one for one in flags if one.partition(" ")[0] not in names)
