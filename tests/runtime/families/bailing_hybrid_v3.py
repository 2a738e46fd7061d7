from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny


def _bailing_v3(hf: dict[str, Any]) -> dict[str, Any]:
    """Under a checkpoint's names, with what transformers' class has no field for."""
    published = {
        **{"num_expert_group": "n_group", "num_experts_per_token": "num_experts_per_tok"},
        **{"moe_renormalize": "norm_topk_prob", "model_max_length": "max_position_embeddings"},
        "linear_head_dim": "head_dim",
    }
    kept = {name: value for name, value in hf.items() if name not in ("head_dim", *published)}
    return {
        **kept,
        **{name: hf[own] for own, name in published.items()},
        "architectures": ["BailingMoeV3ForCausalLM"],
        "gated_attention_proj_granularity_type": "head_wise",
        **{"moe_router_enable_expert_bias": True, "no_kda_lora": True, "router_dtype": "fp32"},
    }


_RENAMED = {
    **{".self_attn.o_proj.": ".attention.dense.", ".self_attn.forget_gate.": ".attention."},
    **{".self_attn.": ".attention.", "model.embed_tokens.": "model.word_embeddings."},
}
TINY: dict[str, Tiny] = {}
TINY["bailing_hybrid_v3"] = Tiny(
    "BailingHybridConfig",
    {
        **{
            name: value
            for name, value in sizes.LATENT.items()
            if name not in ("q_lora_rank", "n_routed_experts")
        },
        "num_hidden_layers": 4,
        "layer_group_size": 2,
        "head_dim": 16,
        "num_experts": 8,
        "n_group": 4,
        "topk_group": 2,
        "first_k_dense_replace": 1,
        "kda_lower_bound": -3.0,
        "pad_token_id": None,
        "eos_token_id": None,
    },
    {
        **choices.without(choices.LATENT, "q_lora_rank", "n_routed_experts"),
        "hidden_act": ("silu",) * 49 + ("gelu",),
        "num_hidden_layers": (4,) * 49 + (3,),
        "layer_group_size": (2, 4) * 24 + (1,),
        "rms_norm_eps": (1e-6,) * 49 + (1e-2,),
        "attention_bias": (False,) * 49 + (True,),
        "tie_word_embeddings": (False,) * 49 + (True,),
        "num_experts": (8, 16),
        "n_group": (2, 4),
        "num_experts_per_tok": (1, 2, 2, 3),
        "short_conv_kernel_size": (2, 3, 4),
        "head_dim": (16,) * 49 + (8,),
        "v_head_dim": (16,) * 49 + (24,),
        "kda_safe_gate": (True, True, False),
        "kda_lower_bound": (-5.0, -1.0, -0.3),
        "rope_parameters": (*choices.ROPES[:2] * 24, choices.ROPES[2]),
        "layer_types": (None,) * 49 + (["full_attention", "linear_attention"] * 2,),
        "mlp_layer_types": (None,) * 49 + (["sparse", "dense"] * 2,),
    },
    as_published=_bailing_v3,
    renamed=_RENAMED,
)
