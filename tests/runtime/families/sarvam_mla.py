from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_STRETCHED = {
    **{"type": "deepseek_yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    **{"mscale": 1.0, "mscale_all_dim": 1.0},
}
TINY: dict[str, Tiny] = {
    "sarvam_mla": Tiny(
        "SarvamMLAConfig",
        {
            **{name: size for name, size in sizes.LATENT.items() if not name.startswith(("n_", "q_lora"))},
            **{"num_experts": 8, "num_shared_experts": 1, "first_k_dense_replace": 1, "rms_norm_eps": 1e-6},
            **{"routed_scaling_factor": 2.5, "rope_theta": 10000.0, "rope_scaling": _STRETCHED},
            "tie_word_embeddings": False,
        },
        {
            **choices.without(
                choices.LATENT,
                *("rope_parameters", "tie_word_embeddings", "n_routed_experts", "n_shared_experts"),
                *("norm_topk_prob", "attention_bias", "q_lora_rank", "n_group", "topk_group"),
            ),
            "num_experts": (8, 16),
            "num_shared_experts": (1, 2),
            "n_group": (None, None, 1, 2, 2),
            "topk_group": (None, 1),
            "rope_theta": (500.0, 10000.0),
            "rope_scaling": (
                *(_STRETCHED,) * 6,
                {**_STRETCHED, "mscale_all_dim": 0.707, "beta_fast": 16.0, "beta_slow": 2.0},
                {**_STRETCHED, "rope_type": "deepseek_yarn"},
                {"rope_type": "default"},
                *({"type": "default"},) * 4,
                {**_STRETCHED, "type": "yarn"},
                {**_STRETCHED, "mscale": None},
                {"rope_type": "linear", "factor": 2.0},
            ),
            "q_lora_rank": (*(None,) * 29, 24),
            "attention_bias": (*(None,) * 29, False, True),
            "moe_layer_freq": (*(None,) * 29, 1, 2),
            "norm_topk_prob": (*(None,) * 29, True, False),
            "score_function": (*(None,) * 29, "sigmoid", "softmax"),
            "router_dtype": (*(None,) * 29, "fp32", "bf16"),
        },
    )
}
