from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["internlm2"] = Tiny(
    "InternLM2Config",
    {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "bias": False, "tie_word_embeddings": False},
    {
        **choices.without(choices.HEADS, "rope_parameters", "head_dim", "tie_word_embeddings"),
        "rope_scaling": (None,) * 2 + tuple(rope for rope in choices.ROPES if rope is not None),
        "rope_theta": (None, 500.0),
        "bias": (False,) * 19 + (True,),
        "tie_word_embeddings": (False,) * 19 + (True,),
    },
)
