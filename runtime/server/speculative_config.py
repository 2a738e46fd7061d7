"""How drafts are made, resolved: data, no torch."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.server.bounds import SPECULATIVE, check_flags


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """By one more layer of the model itself, as EAGLE does."""

    num_steps: int = 3
    eagle_topk: int = 1
    num_draft_tokens: int = 4
    is_counted: bool = True  # its layers' keys and values, when the pool is sized
    plain: bool = False  # where a flag quantizes its target

    def __post_init__(self) -> None:
        check_flags(self, SPECULATIVE)
