from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["bailing_moe"] = Tiny(
    "BailingMoeConfig",
    {
        **sizes.BAILING,
        "norm_topk_prob": True,
        "num_shared_experts": 2,
        "norm_head": True,
    },
    {
        **choices.without(choices.BAILING, "partial_rotary_factor", "rotary_dim"),
        "num_shared_experts": (None, 0, 1, 2),
        "score_function": (*(None, "softmax") * 9, "sigmoid"),
        "n_group": (None,) * 19 + (2,),
        "use_sliding_window": (None, False),
        "sliding_window": (None, 4096),
    },
)
TINY["bailing_moe_v2"] = Tiny(
    "BailingMoeV2Config",
    {
        **sizes.BAILING,
        "norm_topk_prob": True,
        "num_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.5,
        "moe_router_enable_expert_bias": True,
        "score_function": "sigmoid",
        "use_qk_norm": True,
        "rotary_dim": 8,
        "router_dtype": "fp32",
    },
    {
        **choices.BAILING,
        "num_shared_experts": (1, 2),
        "n_group": (1, 2, 4),
        "topk_group": (1, 2),
        "use_qk_norm": (True, False),
        "score_function": (None, *("sigmoid",) * 8, "softmax"),
        "moe_router_enable_expert_bias": (True,) * 19 + (False,),
        "router_type": (None,) * 19 + ("MultiRouter",),
    },
)
TINY["sarvam_moe"] = Tiny(
    "SarvamMoEConfig",
    {
        **TINY["bailing_moe_v2"].sizes,
        **{"head_dim": 16, "rms_norm_eps": 1e-6, "moe_intermediate_size": 32},
    },
    TINY["bailing_moe_v2"].space,
)
TINY["llada2_moe"] = Tiny(
    "LLaDA2MoeConfig",
    TINY["sarvam_moe"].sizes,
    {**TINY["sarvam_moe"].space, "expert_capacity": (None,) * 19 + (4,), "block_size": (None, 32)},
)
