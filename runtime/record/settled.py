"""What a start settles before it builds its model, as the server's own functions answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Gate:
    """Whether a start tunes for one model, and the file of its tactics, below the server's cache folder."""

    tunes: bool
    file: str


@dataclass(frozen=True)
class Settled:
    """`most_requests`: of one rank, were its memory endless. `draft`: the gate of a draft model."""

    config_class: str
    dtype: str
    kv_cache_dtype: str
    context_length: int
    attn_dp_size: int
    decode_graphs: tuple[int, ...]
    prefill_graphs: tuple[int, ...]
    most_requests: int
    gate: Gate
    draft: Gate | None = None


@dataclass(frozen=True)
class Resolved:
    """The server's arguments, resolved; and what it made of them, where the start came to it.

    `given`: the arguments that the command sets. `defaults`: those of arguments that have another value.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    settled: Settled | None = None
    given: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
