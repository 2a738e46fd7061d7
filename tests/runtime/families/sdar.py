from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_TOLD = {"head_dim": 32, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}
_SPACE = {
    **choices.without(choices.HEADS, "rope_parameters", "head_dim", "tie_word_embeddings"),
    "head_dim": (8, 16, 32),
    "rope_scaling": (None,) * 2 + tuple(rope for rope in choices.ROPES if rope is not None),
    "rope_theta": (None, 500.0),
    "attention_bias": (False, True),
    "tie_word_embeddings": (False,) * 19 + (True,),
    "use_sliding_window": (None, *(False,) * 19, True),
    "sliding_window": (None, 4),
}
TINY: dict[str, Tiny] = {
    "sdar": Tiny("SDARConfig", _TOLD, _SPACE),
    "sdar_moe": Tiny(
        "SDARMoeConfig",
        {**sizes.QWEN_MOE, **_TOLD, "norm_topk_prob": True},
        {
            **_SPACE,
            **choices.EXPERTS,
            "num_experts": (4, 8),
            "moe_intermediate_size": (16, 32),
            "norm_topk_prob": (*(True,) * 19, False),
            **choices.ALL_SPARSE,
        },
    ),
}
