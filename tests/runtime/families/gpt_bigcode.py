from __future__ import annotations

from tests.runtime.families.gpt2 import APART, SIZES, SPACE
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["gpt_bigcode"] = Tiny(
    "GPTBigCodeConfig",
    SIZES,
    {
        **SPACE,
        "activation_function": (*("gelu", "gelu_new", "gelu_pytorch_tanh") * 9, "relu"),
        "multi_query": (*(True,) * 24, False),
    },
    spelled_apart=APART,
)
