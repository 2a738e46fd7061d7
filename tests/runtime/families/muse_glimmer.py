from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_FULL, _BEHIND = "full_attention", "sliding_attention"
_KINDS = (*([_BEHIND, _BEHIND, _FULL],) * 4, [_BEHIND] * 3, [_FULL] * 3)
_THETAS = (*([500.0, 500.0, 0],) * 2, *([900.0] * 3,) * 2, [0, 0, 500.0], [0, 0, 0])
_TOWER = {
    **sizes.PIXTRAL,
    "patch_size": 2,
    "pos_emb_height": 3,
    "pos_emb_width": 3,
    "rope_parameters": {"rope_type": "axial", "rope_theta": 10000.0},
}

TINY: dict[str, Tiny] = {}
TINY["muse_glimmer"] = Tiny(
    "MuseGlimmerConfig",
    {
        "head_dim": 16,
        "sliding_window": 6,
        "layer_types": [_BEHIND, _FULL],
        "qk_scale_factor": 3.0,
        "output_multiplier": 0.5,
        "final_logit_softcapping": 5.0,
        "post_norm_eps": 1e-3,
        "pad_token_id": None,
    },
    {
        **choices.without(choices.HEADS, "hidden_act"),
        "num_hidden_layers": (3,),
        "head_dim": (8, 16, 32),
        "hidden_activation": (*("silu",) * 29, "gelu"),
        "tie_word_embeddings": (*(False,) * 29, True),
        "attention_bias": (*(False,) * 29, True),
        "rope_parameters": (*choices.ROPES[:2] * 15, *choices.ROPES[2:4], *choices.ROPES[7:]),
        "sliding_window": (1, 5, 64),
        "layer_types": _KINDS,
        "layer_rope_theta": (None, *_THETAS),
        "qk_scale_factor": (1.0, 3.87),
        "output_multiplier": (1.0, 0.2),
        "post_norm_eps": (1e-8, 1e-2),
        "final_logit_softcapping": (3.0, 20.0),
    },
    tower=_TOWER,
    beside={"out_hidden_size": 64, "projector_hidden_size": 24},
)
