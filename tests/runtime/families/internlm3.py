from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["internlm3"] = Tiny("InternLM3Config", {"head_dim": 16}, choices.HEADS)
