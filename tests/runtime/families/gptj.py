from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.gpt2 import APART, SIZES, SPACE
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["gptj"] = Tiny(
    "GPTJConfig",
    {**SIZES, "rotary_dim": 8},
    {
        **choices.without(SPACE, "scale_attn_weights", "tie_word_embeddings"),
        "activation_function": (*("gelu", "gelu_new", "gelu_pytorch_tanh") * 9, "relu"),
        "rotary_dim": (*(2, 4, 8) * 8, 32),
        "tie_word_embeddings": (*(False,) * 24, True),
    },
    spelled_apart=APART,
)
