from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_SPACE = {
    **choices.without(choices.HEADS, "rope_parameters", "head_dim"),
    **choices.EXPERTS,
    "tie_word_embeddings": (*(False,) * 9, True),
    "rope_parameters": (*choices.ROPES[:2] * 4, choices.ROPES[2]),
    "num_local_experts": (4, 8),
}
TINY: dict[str, Tiny] = {}
TINY["mixtral"] = Tiny(
    "MixtralConfig",
    {"num_local_experts": 4, "num_experts_per_tok": 2},
    {**_SPACE, **choices.WINDOW, "head_dim": (*(None,) * 9, 32)},
)
TINY["mixtral_quant"] = Tiny(
    "MixtralConfig",
    {"num_local_experts": 4, "num_experts_per_tok": 2},
    _SPACE,
    as_published=lambda hf: {**hf, "architectures": ["QuantMixtralForCausalLM"]},
)
