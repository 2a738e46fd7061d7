"""Heads that ranks cannot share, of classes whose sizes are asked of their files."""

from __future__ import annotations

from collections.abc import Iterator


def undivided(heads: int, kv_heads: int, ranks: int, where: str = "") -> Iterator[str]:
    """KV heads may be fewer than ranks, which then hold copies."""
    if heads % ranks:
        yield f"{heads} attention heads{where} cannot be divided among {ranks} ranks"
    if kv_heads % ranks and ranks % kv_heads:
        yield f"{kv_heads} KV heads{where} cannot be divided among {ranks} ranks"
