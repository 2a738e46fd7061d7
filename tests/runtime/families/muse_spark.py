from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_FULL, _BEHIND = "full_attention", "sliding_attention"

_TOWER = {
    **sizes.PIXTRAL,
    "patch_size": 2,
    "pos_emb_height": 3,
    "pos_emb_width": 3,
    "merge_size": 2,
    "hidden_act": "gelu",
    "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
}
_EAR = {
    **{"patch_sizes": [2, 3], "hidden_sizes": [8, 16], "depths": [1, 2], "num_hidden_layers": 2},
    "out_hidden_size": 64,
}
TINY: dict[str, Tiny] = {}
TINY["muse_spark"] = Tiny(
    "MuseSparkConfig",
    {
        "head_dim": 16,
        "sliding_window": 6,
        "layer_types": [_BEHIND, _FULL],
        "layer_rope_theta": [500000.0, 0],
        "mlp_layer_types": ["dense", "sparse"],
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "moe_hidden_size": 48,
        "qk_scale_factor": 3.0,
        "output_multiplier": 0.5,
        "final_logit_softcapping": 5.0,
        "post_norm_eps": 1e-3,
        "routed_scaling_factor": 1.5,
    },
    {
        **choices.without(choices.HEADS, "hidden_act", "rope_parameters"),
        **choices.EXPERTS,
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "hidden_act": (*("silu",) * 19, "gelu"),
        "tie_word_embeddings": (*(False,) * 19, True),
        "attention_bias": (*(False,) * 19, True),
        "rope_parameters": (*({"rope_type": "default", "rope_theta": 700.0},) * 9, *choices.ROPES[2:3]),
        "layer_types": (*([_BEHIND, _BEHIND, _FULL],) * 8, [_FULL] * 3, [_BEHIND] * 3),
        "layer_rope_theta": (*([700.0, 700.0, 0],) * 9, [700.0] * 3, [0] * 3, [900.0] * 3, [700.0, 0, 0]),
        "mlp_layer_types": (*(["dense", "sparse", "sparse"],) * 3, ["sparse"] * 3, ["dense"] * 3),
        "num_local_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "moe_hidden_size": (*(32, 48, 96) * 3, 64),
        "sliding_window": (1, 5, 64),
        "qk_scale_factor": (1.0, 5.47),
        "output_multiplier": (1.0, 0.2),
        "post_norm_eps": (1e-8, 1e-2),
        "final_logit_softcapping": (3.0, 20.0),
        "routed_scaling_factor": (1.0, 2.5),
        "residual_gate_temperature": (0.3, 1.0),
    },
    tower=_TOWER,
    beside={"out_hidden_size": 64, "projector_hidden_size": 24, "audio_config": _EAR},
)
