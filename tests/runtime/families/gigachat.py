from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_RARE = 60
_YARN = {
    **{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    **{"mscale": 1.0, "mscale_all_dim": 1.0},
}
_GATES = "gated_rmsnorm_sigmoid_zero_centered"
_DELTA = {
    **{"linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 16},
    **{"linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "linear_gating_type": _GATES},
}
TINY: dict[str, Tiny] = {
    "gigachat3_5": Tiny(
        "GigaChat35Config",
        {
            **sizes.LATENT,
            **{"first_k_dense_replace": 1, "rms_norm_eps": 1e-6, "rope_scaling": _YARN},
            **{"rope_theta": 10000.0, "full_attention_layers": [1], "swiglu_limit": 10.0, **_DELTA},
        },
        {
            **choices.without(
                choices.LATENT,
                *("rope_parameters", "tie_word_embeddings", "attention_bias", "hidden_act", "q_lora_rank"),
            ),
            "num_hidden_layers": (3,),
            "rms_norm_eps": (1e-2, 5e-2),
            "q_lora_rank": (16, 24, None),
            "hidden_act": (*("silu",) * _RARE, "swish", "gelu"),
            "tie_word_embeddings": (*(False,) * _RARE, True),
            "attention_bias": (*(None,) * _RARE, False, True),
            "full_attention_layers": ([0], [1], [2], [0, 2], [1, 2]),
            "layer_types": (
                *(None,) * _RARE,
                ["linear_attention", "full_attention", "linear_attention"],
                ["linear_attention"] * 3,
            ),
            "rope_interleave": (None, True, False),
            "rope_theta": (500.0, 10000.0),
            "rope_scaling": (
                *(_YARN,) * 9,
                {**_YARN, "mscale_all_dim": 0.707, "beta_fast": 16.0, "beta_slow": 2.0},
                {**_YARN, "mscale": 0.5},
                {"rope_type": "default"},
            ),
            "moe_layer_freq": (1, 1, 2),
            "norm_topk_prob": (None, True, False),
            "linear_num_key_heads": (1, 2, 4),
            "linear_num_value_heads": (4, 8),
            "linear_key_head_dim": (8, 16, 32),
            "linear_value_head_dim": (8, 16, 24),
            "linear_conv_kernel_dim": (2, 3, 4),
            "linear_gating_type": (_GATES, "gated_rmsnorm_sigmoid") * 20 + ("gated_rmsnorm",),
            "linear_sigmoid_gate_scale": (None, 1.0, 2.0, 0.5),
            "layernorm_type": (*("pre_post", None, "pre") * 12, "post"),
            "layernorm_gating_weight": (None, 1.0, 3.0),
            "gated_attention": (None, True, False),
            "use_mla_scaling_factor": (None, True, False),
            "swiglu_limit": (None, 0.5, 10.0),
            "norm_type": (*(None,) * _RARE, "GatedNorm", "LlamaRMSNorm"),
            "output_gate_type": (*(None,) * _RARE, "silu"),
            "scoring_func": (*(None,) * _RARE, "softmax"),
            "topk_method": (*(None,) * _RARE, "greedy"),
        },
    )
}
