"""How much one measurement by FlashInfer's own clock costs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """Untimed launches, timed ones, and how long the device waits for them to queue up."""

    warmup: int
    repeat: int
    delay_us: int
