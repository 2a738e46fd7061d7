from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RARE = 19

TINY: dict[str, Tiny] = {}
TINY["iquestloopcoder"] = Tiny(
    "LlamaConfig",
    {
        "num_hidden_layers": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "rope_theta": 500.0,
        "loop_num": 2,
        "loop_window_size": 5,
    },
    {
        **choices.without(choices.HEADS, "rope_parameters", "head_dim"),
        "rope_theta": (300.0, 90000),
        "rope_scaling": (None,) * _RARE + ({"rope_type": "yarn", "factor": 2.0},),
        "loop_num": (2, 2, 3, *(1,) * 1),
        "loop_window_size": (1, 4, 64),
        "attention_bias": (None,) * _RARE + (True,),
        "mlp_bias": (None,) * _RARE + (True,),
        "use_sliding_window": (None,) * _RARE + (True,),
    },
)
