from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_RARE = 40


def _published(hf: dict[str, Any]) -> dict[str, Any]:
    return {**hf, "model_type": "kimi_linear", "architectures": ["KimiK3LinearForCausalLM"]}


TINY: dict[str, Tiny] = {}
TINY["kimi_k3_text"] = Tiny(
    "KimiLinearConfig",
    {
        "num_hidden_layers": 4,
        "num_key_value_heads": 4,
        "hidden_act": "situ",
        "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 2.0,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "mla_use_output_gate": True,
        "num_experts": 8,
        "num_experts_per_token": 2,
        "num_shared_experts": 1,
        "moe_intermediate_size": 32,
        "routed_expert_hidden_size": 40,
        "latent_moe_use_norm": True,
        "first_k_dense_replace": 1,
        "attn_res_block_size": 2,
        "linear_attn_config": {
            **sizes.delta_layers([1, 2, 4], 4),
            "use_full_rank_gate": True,
            "gate_lower_bound": -5.0,
        },
    },
    {
        **choices.without(
            choices.HEADS, "head_dim", "num_attention_heads", "num_key_value_heads", "rope_parameters"
        ),
        "hidden_act": ("situ",) * 9 + ("silu",) * 3 + ("gelu",),
        "activation_situ_beta": (4.0, 1.5) * 9 + (None,),
        "activation_situ_linear_beta": (25.0, 1.0, None),
        "rms_norm_eps": (1e-5, 1e-6, 1e-2),
        "num_hidden_layers": (3,),
        "num_attention_heads": (4,),
        "tie_word_embeddings": (False,) * _RARE + (True,),
        "attention_bias": (None,) * _RARE + (True,),
        "topk_method": ("noaux_tc",) * _RARE + ("greedy",),
        "moe_router_activation_func": ("sigmoid",) * _RARE + ("softmax",),
        "rope_scaling": (None,) * _RARE + ({"rope_type": "yarn", "factor": 4.0},),
        "linear_attn_config": tuple(
            {
                **sizes.delta_layers(deltas, 3, num_heads=heads, head_dim=width, short_conv_kernel_size=taps),
                **{name: value for name, value in own.items() if value is not None},
            }
            for deltas, heads, width, taps, own in (
                ([1, 3], 4, 8, 4, {"use_full_rank_gate": True, "gate_lower_bound": -5.0}),
                ([1], 8, 16, 3, {"use_full_rank_gate": True}),
                ([2, 3], 4, 16, 2, {"use_full_rank_gate": False, "gate_lower_bound": -1.0}),
                ([1, 2], 2, 32, 4, {"gate_lower_bound": None}),
                ([3], 4, 8, 3, {"use_full_rank_gate": True, "gate_lower_bound": -0.3}),
            )
        ),
        "kv_lora_rank": (16, 32),
        "qk_nope_head_dim": (8, 16),
        "qk_rope_head_dim": (4, 8),
        "v_head_dim": (8, 16, 24),
        "q_lora_rank": (None, 16, 24),
        "mla_use_output_gate": (True, False),
        "num_experts": (8, 16) * 9 + (None,),
        "num_experts_per_token": (1, 2, 3),
        "moe_intermediate_size": (16, 32),
        "num_shared_experts": (0, 1, 2),
        "routed_expert_hidden_size": (24, 40, None),
        "latent_moe_use_norm": (True, False),
        "routed_scaling_factor": (1.0, 2.446),
        "num_expert_group": (1, 2, 4),
        "topk_group": (1, 2),
        "moe_renormalize": (True, False),
        "first_k_dense_replace": (0, 1, 9),
        "moe_layer_freq": (1, 1, 2),
        "attn_res_block_size": (1, 2, 3, None),
        "max_position_embeddings": (128, 256),
    },
    as_published=_published,
)
