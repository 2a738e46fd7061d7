"""Where a simulated start may differ from a real one, for what-if predictions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What-if settings. `kv_tokens` is the KV pool's size, which otherwise follows from memory; `most_tokens`
    is the largest pool that the other pipeline stages have room for."""

    kv_tokens: int | None = None
    most_tokens: int | None = None
    lm_head_in_autotune: bool = False
    graphs_ascending: bool = False
