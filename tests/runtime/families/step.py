from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import HF, Tiny

_STEP = {
    **choices.without(choices.HEADS, "hidden_act"), "num_hidden_layers": (3,), "head_dim": (8, 16, 32),
    "hidden_act": ("silu",), "tie_word_embeddings": (False,) * 9 + (True,),
    "num_sliding_attention_heads": (None, 4, 8, 16), **choices.NO_BIAS,
    "layer_types": (["full_attention"] * 3, *(["full_attention", *kinds] for kinds in choices.BOTH_KINDS)),
    "mlp_layer_types": (["dense", "sparse", "sparse"], ["sparse", "dense", "sparse"]),
    **choices.EXPERTS, "n_routed_experts": (4, 8), "moe_intermediate_size": (16, 32),
    "share_expert_dim": (16, 48),
    "moe_router_scaling_factor": (1.0, 3.0), "sliding_window": (1, 5, 64),
    "query_pre_attn_scalar": (None, 4, 100), "mlp_bias": (False,) * 9 + (True,),
    "swiglu_limits": (None, [0.0, 0.0, 0.5], [None, 0.2, 7.0]),
    "swiglu_limits_shared": (None, [0.0, 0.6, 0.0], [0.3, None, 16.0]),
    "rope_parameters": (None, *choices.ROPES_BY_KIND),
}  # fmt: skip


def _listed(hf: HF) -> HF:
    """With the list that SGLang goes by, which transformers takes and does not write."""
    text = hf.get("text_config", hf)
    sparse = [str(at) for at, kind in enumerate(text["mlp_layer_types"]) if kind == "sparse"]
    text["moe_layers_enum"] = ",".join(sparse)
    return hf


TINY: dict[str, Tiny] = {}
TINY["step3p5"] = Tiny(
    "Step3p7TextConfig",
    {
        "head_dim": 16,
        "num_sliding_attention_heads": 8,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 6,
        "mlp_layer_types": ["dense", "sparse"],
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "share_expert_dim": 48,
        "moe_router_scaling_factor": 1.5,
        "swiglu_limits": [0.0, 0.5],
        "swiglu_limits_shared": [0.7, 0.4],
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 900.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
        },
    },
    _STEP,
    inside="step3p7",
    as_published=_listed,
)
TINY["step3p7"] = Tiny(
    "Step3p7Config",
    {**TINY["step3p5"].sizes},
    _STEP,
    tower={**sizes.PIXTRAL, "image_size": 56, "mlp_ratio": 1.5},
    as_published=_listed,
)
