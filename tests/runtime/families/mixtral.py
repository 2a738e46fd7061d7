from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["mixtral"] = Tiny(
    "MixtralConfig",
    {"num_local_experts": 4, "num_experts_per_tok": 2},
    {**choices.HEADS, **choices.WINDOW, **choices.EXPERTS, "num_local_experts": (4, 8)},
)
