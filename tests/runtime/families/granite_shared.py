from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
_SIZES = {**sizes.GRANITE, "num_local_experts": 4, "shared_intermediate_size": 48}
_SPACE = {
    **choices.GRANITE,
    **choices.EXPERTS,
    "head_dim": (None,),
    "attention_bias": (False,) * 19 + (True,),
    "rope_parameters": (*choices.ROPES[:2] * 9, choices.ROPES[2]),
    "num_local_experts": (4, 8),
    "shared_intermediate_size": (0, 16, 48),
}
TINY["granitemoeshared"] = Tiny("GraniteMoeSharedConfig", _SIZES, _SPACE)
_BEHIND = {
    "layer_types": ["full_attention", "sliding_attention"],
    "layer_rope_theta": [0, 500.0],
    "sliding_window": 6,
}
_WINDOWS = {
    "num_hidden_layers": (3,),
    "sliding_window": (1, 5, 64),
    "layer_types": (
        *(["full_attention", "sliding_attention", "sliding_attention"],) * 8,
        *(["full_attention"] * 3, ["sliding_attention"] * 3),
    ),
    "layer_rope_theta": (
        *([500.0] * 3, [0, 500.0, 500.0], [900.0, 0.0, 0.0]) * 4,
        [0] * 3,
        [70.0, 70.0, 0],
    ),
}
TINY["granitemoe_swa"] = Tiny("GraniteMoeSWAConfig", {**_SIZES, **_BEHIND}, {**_SPACE, **_WINDOWS})
TINY["granite_swa"] = Tiny(
    "GraniteSWAConfig",
    {**sizes.GRANITE, **_BEHIND},
    {
        **choices.without(_SPACE, *choices.EXPERTS, "num_local_experts", "shared_intermediate_size"),
        **_WINDOWS,
    },
)
