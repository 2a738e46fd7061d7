from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny, with_count

TINY: dict[str, Tiny] = {}
TINY["glm4"] = Tiny(
    "Glm4Config",
    {"head_dim": 32, "pad_token_id": None},
    {
        **choices.HEADS,
        "head_dim": (8, 16, 32),
        "attention_bias": (False, True),
        "partial_rotary_factor": (None, 0.5, 1.0, 0.25),
    },
)
TINY["glm4_moe"] = Tiny(
    "Glm4MoeConfig",
    {
        "head_dim": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
        "use_qk_norm": True,
        "attention_bias": True,
        "n_group": 1,
        "topk_group": 1,
    },
    {
        **choices.HEADS,
        **choices.SIGMOID,
        **choices.NO_TIE,
        "use_qk_norm": (False, True),
        "partial_rotary_factor": (None, 0.5, 1.0, 0.25),
    },
)
TINY["glm4_moe_lite"] = Tiny(
    "Glm4MoeLiteConfig",
    {**sizes.LATENT},
    {
        **choices.without(choices.LATENT, "first_k_dense_replace"),
        **choices.NO_TIE,
        "q_lora_rank": (None, 24),
        "rope_interleave": (True, False),
        "rope_parameters": choices.MSCALES,
        "mlp_layer_types": (None, ["sparse"] * 3),
    },
    as_published=with_count,
)
TINY["glm_moe_dsa"] = Tiny(
    "GlmMoeDsaConfig",
    {**sizes.LATENT, **sizes.SPARSE, "n_group": 1, "topk_group": 1},
    {**choices.LATENT, **choices.SPARSE, "rope_parameters": choices.MSCALES},
    as_published=with_count,
)
