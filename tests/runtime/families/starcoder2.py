from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["starcoder2"] = Tiny(
    "Starcoder2Config",
    {"tie_word_embeddings": False},
    {
        **choices.without(choices.HEADS, "rms_norm_eps", "head_dim"),
        "sliding_window": (None, 64),  # which no request is as long as: SGLang has no windows of it
        "norm_epsilon": (1e-6, 1e-2),
        "use_bias": (False, True),
        "hidden_act": ("gelu_pytorch_tanh",) * 9 + ("gelu",),
        "rope_parameters": (*choices.ROPES[:2] * 4, *choices.ROPES[2:4]),
    },
)
