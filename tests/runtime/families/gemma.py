from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_GEMMA: dict[str, tuple[Any, ...]] = {
    **choices.without(choices.HEADS, "hidden_act"),
    "head_dim": (8, 16, 32), "query_pre_attn_scalar": (4, 16, 100), "attention_bias": (False, True),
    "final_logit_softcapping": (None, 3.0, 30.0), "sliding_window": (1, 5, 64),
    "hidden_activation": ("gelu_pytorch_tanh",) * 6 + ("gelu",),
    "use_bidirectional_attention": (False,) * 6 + (True,),
}  # fmt: skip
_GEMMA3 = {
    **_GEMMA, "sliding_window_pattern": (1, 2, 3), "sliding_window": (2, 5, 64),
    "rope_parameters": (None, *choices.ROPES_BY_KIND),
}  # fmt: skip
TINY: dict[str, Tiny] = {}
TINY["gemma"] = Tiny(
    "GemmaConfig",
    {"head_dim": 16},
    {
        **choices.without(choices.HEADS, "hidden_act"),
        "head_dim": (8, 16, 32),
        **choices.NO_BIAS,
        "hidden_act": (*("gelu_pytorch_tanh",) * 5, "gelu", "silu"),
        "tie_word_embeddings": (*(True,) * 9, False),
        "use_bidirectional_attention": (None,) * 6 + (True,),
    },
)
TINY["gemma2"] = Tiny(
    "Gemma2Config",
    {
        "head_dim": 16,
        "sliding_window": 6,
        "query_pre_attn_scalar": 20,
        "final_logit_softcapping": 5.0,
        "attn_logit_softcapping": 3.0,
    },
    {
        **_GEMMA,
        "attn_logit_softcapping": (None, 2.0, 50.0),
        "sliding_window": (1, 5, 64),
    },
)
TINY["gemma3_text"] = Tiny(
    "Gemma3TextConfig",
    {"head_dim": 32, "sliding_window": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20},
    {
        **_GEMMA3,
        "layer_types": (None,) * 3 + tuple([*kinds, kinds[0]] for kinds in choices.BOTH_KINDS),
    },
)
TINY["gemma3"] = Tiny(
    "Gemma3Config",
    {"head_dim": 32, "sliding_window": 6, "query_pre_attn_scalar": 20},
    {**_GEMMA3, "final_logit_softcapping": (None,)},
    tower={
        **sizes.PIXTRAL,
        "model_type": "siglip_vision_model",
        "vision_use_head": False,
        "image_size": 112,
        "patch_size": 14,
    },
)
