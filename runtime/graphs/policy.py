"""How graphs are captured: the order of their sizes and whose memory they use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class CapturePolicy:
    """Largest first into one pool lets every later graph reuse the blocks of the first; ascending cannot."""

    order: Literal["descending", "ascending"] = "descending"
    shared_pool: bool = True
    warm_ups: int = 2

    def ordered(self, sizes: Iterable[int]) -> list[int]:
        return sorted(sizes, reverse=self.order == "descending")
