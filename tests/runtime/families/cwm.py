from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_WINDOWS = {
    "head_dim": (8, 16, 32),
    "num_hidden_layers": (2,),
    "sliding_window": (1, 5, 64),
    "layer_types": (None, *choices.BOTH_KINDS, ["full_attention"] * 2, ["sliding_attention"] * 2),
}
TINY: dict[str, Tiny] = {}
TINY["cwm"] = Tiny(
    "CwmConfig",
    {"head_dim": 32, "sliding_window": 5},
    {**choices.HEADS, **_WINDOWS, "mlp_bias": (False,) * 9 + (True,)},
)
TINY["ministral"] = Tiny(
    "MinistralConfig",
    {"head_dim": 32, "sliding_window": 5},
    {**choices.HEADS, **_WINDOWS},
)
