from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["granite"] = Tiny(
    "GraniteConfig",
    {**sizes.GRANITE},
    choices.GRANITE,
)
TINY["granitemoe"] = Tiny(
    "GraniteMoeConfig",
    {**sizes.GRANITE, "num_local_experts": 4, "num_experts_per_tok": 2},
    {**choices.GRANITE, **choices.EXPERTS, "num_local_experts": (4, 8)},
)
