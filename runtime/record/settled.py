"""What a start decides before it builds its model, as the server's own functions answered."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Gate:
    """Whether a start tunes the target or draft model. `file`: its tactics, below the cache folder."""

    tunes: bool
    file: str


@dataclass(frozen=True)
class Settled:
    """What a start decided. `most_requests`: a rank's limit with endless memory; `draft`: a draft's gate."""

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
    """The server's arguments after resolving, and what it decided from them, if the start got that far.

    `given`: the arguments that the command sets. `defaults`: default values of arguments with another value.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    settled: Settled | None = None
    given: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
