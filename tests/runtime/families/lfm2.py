from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_CONVOLVED = (
    ["conv", "conv", "full_attention"],
    ["full_attention", "conv", "conv"],
    ["conv", "full_attention", "full_attention"],
    ["full_attention"] * 3,
)
_LFM2 = {
    **choices.without(choices.HEADS, "hidden_act", "rms_norm_eps", "head_dim"), "num_hidden_layers": (3,),
    "norm_eps": (1e-6, 1e-2), "conv_bias": (False, True), "conv_L_cache": (2, 3, 4),
    "tie_embedding": (None, False, True),
}  # fmt: skip
_LFM2_DENSE = {
    **_LFM2, "layer_types": (None, *_CONVOLVED), "full_attn_idxs": (None, [0], [0, 2], [1]),
    "block_multiple_of": (16, 32), "block_ffn_dim_multiplier": (1.0, 1.5, 0.75),
    "block_auto_adjust_ff_dim": (True, False), "block_ff_dim": (None, 72),
}  # fmt: skip
TINY: dict[str, Tiny] = {}
TINY["lfm2"] = Tiny(
    "Lfm2Config",
    {
        "layer_types": ["conv", "full_attention"],
        "conv_bias": True,
        "block_multiple_of": 16,
        "tie_word_embeddings": False,
    },
    _LFM2_DENSE,
)
TINY["lfm2_moe"] = Tiny(
    "Lfm2MoeConfig",
    {
        "layer_types": ["conv", "full_attention"],
        "num_dense_layers": 1,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    },
    {
        **_LFM2,
        **choices.EXPERTS,
        "layer_types": _CONVOLVED,
        "num_dense_layers": (0, 1, 9),
        "moe_intermediate_size": (16, 32),
        "num_experts": (4, 8),
        "use_expert_bias": (False, True),
        "routed_scaling_factor": (1.0, 2.5),
        "norm_topk_prob": (False, True),
    },
)
TINY["lfm2_vl"] = Tiny(
    "Lfm2VlConfig",
    {"model_type": "lfm2", **TINY["lfm2"].sizes},
    {**choices.without(_LFM2_DENSE, "tie_embedding"), "tie_word_embeddings": (False, True)},
    tower={**sizes.PIXTRAL, "model_type": "siglip2_vision_model", "vision_use_head": False, "patch_size": 4},
    beside={"projector_hidden_size": 24},
)
