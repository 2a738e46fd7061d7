from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_MIXED = {"rope_type": "default", "fope_init_factor": 0.5, "fope_sep_head": True, "num_inv_freq": None}
TINY: dict[str, Tiny] = {
    "interns1_pro_text": Tiny(
        "InternS1ProTextConfig",
        {
            **{"head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": _MIXED},
            **{"attention_bias": False, "tie_word_embeddings": False, "num_experts": 8},
            **{"num_experts_per_tok": 4, "moe_intermediate_size": 32, "norm_topk_prob": True},
            "router_n_groups": 2,
        },
        {
            **choices.without(choices.HEADS, "rope_parameters", "head_dim"),
            "head_dim": (8, 16, 32),
            "rope_scaling": (
                *(_MIXED,) * 4,
                {"type": "default", "fope_sep_head": True},
                *({"rope_type": "default", "num_inv_freq": count} for count in (1, 3, 99)),
                {"rope_type": "default"},
                {"rope_type": "linear", "factor": 2.0},
                {**_MIXED, "rope_type": "linear", "factor": 2.0},
                {**_MIXED, "fope_sep_head": False},
            ),
            "rope_theta": (500.0, 10000.0, 5e6),
            "attention_bias": (False, True),
            "num_experts": (8, 16),
            "num_experts_per_tok": (4, 4, 8, 2),
            "moe_intermediate_size": (16, 32),
            "norm_topk_prob": (True, False),
            "router_n_groups": (1, 2, 2, 4, 4, -1),
            **choices.ALL_SPARSE,
        },
    )
}
