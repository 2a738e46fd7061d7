from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_FULL, _SLIDES = "full_attention", "sliding_attention"
_RARE = 40

TINY: dict[str, Tiny] = {}
TINY["iquest_q1"] = Tiny(
    "LlamaConfig",
    {
        "num_hidden_layers": 3,
        "intermediate_size": 32,
        "dense_intermediate_size": 96,
        "head_dim": 16,
        "rms_norm_eps": 1e-6,
        "rotary_dim": 8,
        "rope_theta": 1000.0,
        "swa_rope_theta": 50.0,
        "sliding_window": 6,
        "first_layers_types": [_FULL],
        "hybrid_layers_types_block": [_SLIDES],
        "num_hybrid_layers_block": 1,
        "last_layers_types": [_FULL],
        "mlp_only_layers": [0],
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "first_layer_attn_out_scale": 0.9,
        "first_layer_ffn_out_scale": 1.2,
        "attn_out_scale": 0.8,
        "ffn_out_scale": 0.7,
        "logit_scale": 1.5,
        "tie_word_embeddings": False,
    },
    {
        **choices.without(choices.HEADS, "rope_parameters", "hidden_act", "num_hidden_layers"),
        "intermediate_size": (16, 32),
        "dense_intermediate_size": (48, 96),
        "head_dim": (16, 32),
        "rms_norm_eps": (1e-6, 1e-2),
        "rope_theta": (None, 300.0, 90000),
        "swa_rope_theta": (None, 20.0),
        "rope_scaling": (None,) * 20 + ({"rope_type": "yarn", "factor": 2.0},),
        "rope_parameters": (None, None, {"rope_type": "default", "rope_theta": 40.0}),
        "rotary_dim": (2, 8, 16),
        "no_rope_layers": (None,) * _RARE + ([], [1]),
        "sliding_window": (1, 4, 64),
        "use_sliding_window": (None, None, True, False),
        "use_hybrid_layers": (None, None, True, False),
        "first_layers_types": (None, None, [_SLIDES]),
        "hybrid_layers_types_block": ([_SLIDES], [_FULL]) * 4 + ([_SLIDES, _FULL],),
        "last_layers_types": ([_FULL], [_SLIDES]),
        "mlp_only_layers": (None, None, [], [1, 2]),
        "num_experts": (4, 16),
        "num_experts_per_tok": (1, 2, 3),
        "moe_router_dtype": (None,) * _RARE + ("bf16",),
        "enable_lm_head_fp32": (None,) * _RARE + (False,),
        "enable_sink_attention": (None, True, True, False),
        "first_layer_attn_out_scale": (None, 0.5),
        "first_layer_ffn_out_scale": (None, 2.0),
        "attn_out_scale": (None, 1.5),
        "ffn_out_scale": (None, 0.3),
        "softmax_scale": (None, None, 0.4),
        "logit_scale": (None, 3.0),
    },
)
