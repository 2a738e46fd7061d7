from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _as_published(hf: HF) -> HF:
    """Its rope beside its base."""
    rope = dict(hf.pop("rope_parameters"))
    told = {"mlp_bias": False, "post_norm": False, "qk_norm": True}
    return {**hf, **told, "rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}


TINY: dict[str, Tiny] = {}
TINY["apertus"] = Tiny(
    "ApertusConfig",
    {"attention_bias": True, "rope_parameters": {**(choices.ROPES[3] or {}), "rope_theta": 10000.0}},
    {
        **choices.without(choices.HEADS, "hidden_act"),
        "attention_bias": (False, True),
        "hidden_act": ("xielu",) * 9 + ("silu",),
    },
    as_published=_as_published,
)
