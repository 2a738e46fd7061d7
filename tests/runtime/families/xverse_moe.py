from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["xverse_moe"] = Tiny(
    "XverseMoeConfig",
    {"rms_norm_eps": 1e-6, "num_experts": 8, "num_shared_experts": 2, "moe_top_k": 3},
    {
        **choices.without(choices.HEADS, "rope_parameters", "head_dim"),
        "tie_word_embeddings": (*(False,) * 19, True),
        "num_experts": (8, 16, *(8,) * 6, None),
        "num_shared_experts": (None, 1, 2, 2, 3),
        "moe_top_k": (1, 2, 3),
        "norm_topk_prob": (None, False, True),
        "attention_bias": (*(None, False) * 9, True),
        "rope_theta": (None, 500.0),
        "rope_scaling": (None,) * 9 + choices.ROPES[2:3],
    },
    as_published=lambda hf: {**hf, "architectures": ["XverseMoeForCausalLM"]},
)
