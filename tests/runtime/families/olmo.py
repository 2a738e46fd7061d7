from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["olmo"] = Tiny(
    "OlmoConfig",
    {"num_key_value_heads": 4, "clip_qkv": 1.5},
    {
        **choices.without(choices.HEADS, "rms_norm_eps", "head_dim", "num_key_value_heads"),
        "attention_bias": (False, True),
        "clip_qkv": (None, 0.5, 2.0),
        "num_key_value_heads": (None,) * 9 + (2,),
        "rope_parameters": (*choices.ROPES[:2] * 4, *choices.ROPES[2:4]),
    },
    alike={"num_key_value_heads": "num_attention_heads"},
)
TINY["olmo2"] = Tiny(
    "Olmo2Config",
    {},
    {**choices.HEADS, "head_dim": (None,), "attention_bias": (False, True)},
)


def _olmo3(hf: dict[str, Any]) -> dict[str, Any]:
    """As its checkpoints have it: one rope, which layers behind a window do not stretch."""
    whole = dict(hf.pop("rope_parameters")["full_attention"])
    return {**hf, "rope_theta": whole.pop("rope_theta"), "rope_scaling": whole}


_ROPES_BY_KIND = tuple(
    {kind: {"rope_theta": 900.0, **one} for kind, one in told.items()}
    for rope in (one for one in choices.ROPES if one)
    for told in ({"full_attention": rope, "sliding_attention": {"rope_type": "default"}},)
    if "rope_theta" not in rope
)
TINY["olmo3"] = Tiny(
    "Olmo3Config",
    {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 6,
        "rope_parameters": _ROPES_BY_KIND[2],
    },
    {
        **choices.HEADS,
        "num_hidden_layers": (2,),
        "head_dim": (None,),
        "attention_bias": (False, True),
        "sliding_window": (1, 5, 64),
        "layer_types": (*choices.BOTH_KINDS, ["full_attention"] * 2, ["sliding_attention"] * 2),
        "rope_parameters": _ROPES_BY_KIND,
    },
    as_published=_olmo3,
)
TINY["olmoe"] = Tiny(
    "OlmoeConfig",
    {"num_experts": 8, "num_experts_per_tok": 2, "num_key_value_heads": 4, "rms_norm_eps": 1e-5},
    {
        **choices.HEADS,
        **choices.EXPERTS,
        **choices.NO_TIE,
        **{"head_dim": (None,), "rms_norm_eps": (*(1e-5,) * 9, 1e-2)},
        "num_key_value_heads": (*(None,) * 9, 2),
        **choices.NO_BIAS,
        "num_experts": (4, 8),
        "norm_topk_prob": (False, True),
        "clip_qkv": (None,) * 5 + (0.5,),
    },
    alike={"num_key_value_heads": "num_attention_heads"},
)
