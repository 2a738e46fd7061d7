from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny


def _ropes(share: float, **more: Any) -> dict[str, Any]:
    full = {"rope_theta": 500.0, "partial_rotary_factor": share, **more}
    return {"full_attention": full, "sliding_attention": {"rope_theta": 70.0}}


_BOTH = ["sliding_attention", "full_attention", "sliding_attention"]
TINY: dict[str, Tiny] = {}
TINY["spark2_5"] = Tiny(
    "Spark2_5Config",
    {
        **{"head_dim": 32, "sliding_window": 6, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
        **{"layer_types": _BOTH[:2], "rope_parameters": _ropes(0.25)},
    },
    {
        **choices.without(choices.HEADS, "hidden_act", "rope_parameters"),
        "head_dim": (16, 32),
        "num_hidden_layers": (2, 3),
        "sliding_window": (1, 5, 64),
        "headwise_attn_output_gate": (None, True, False),
        "layer_types": (
            _BOTH,
            _BOTH[1:] + _BOTH[1:2],
            ["sliding_attention"] * 3,
            _BOTH,
            ["full_attention"] * 3,
        ),
        "rope_parameters": (
            *(_ropes(share) for share in (0.25, 0.5, 1.0)),
            _ropes(0.5, rope_type="linear", factor=2.0),
        ),
    },
)
