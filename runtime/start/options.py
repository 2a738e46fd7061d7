"""What a start may do otherwise than a server would: to predict what if."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartOptions:
    """`kv_tokens` are those of the KV pool, where they do not follow from memory; `most_tokens` is what other
    stages have room for."""

    kv_tokens: int | None = None
    most_tokens: int | None = None
    lm_head_in_autotune: bool = False
    graphs_ascending: bool = False
