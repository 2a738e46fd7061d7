from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_BIASED = {"mlp_bias": (False,) * 9 + (True,)}
TINY: dict[str, Tiny] = {}
TINY["seed_oss"] = Tiny(
    "SeedOssConfig",
    {"head_dim": 32, "attention_out_bias": True},
    {
        **choices.HEADS,
        **_BIASED,
        "attention_bias": (None, False, True),
        "attention_out_bias": (None, False, True),
        "tie_word_embeddings": (None, False, True),
    },
)
TINY["smollm3"] = Tiny(
    "SmolLM3Config",
    {"no_rope_layer_interval": 2, "pad_token_id": 0},
    {
        **choices.HEADS,
        **_BIASED,
        "head_dim": (None,),
        "attention_bias": (None, False, True),
        "no_rope_layer_interval": (None, 1, 2, 3),
        "no_rope_layers": (None, None, [1, 0, 1], [0, 0, 0]),
        "use_sliding_window": (None,) * 9 + (True,),
    },
)
TINY["helium"] = Tiny(
    "HeliumConfig",
    {"head_dim": 16, "num_key_value_heads": 2},
    {
        **choices.HEADS,
        **_BIASED,
        "num_attention_heads": (4,),
        "head_dim": (16,),
        "attention_bias": (None, False, True),
    },
)
TINY["ernie4_5_of_transformers"] = Tiny(
    "Ernie4_5Config",
    {"head_dim": 32},
    {**choices.HEADS, "use_bias": (False,) * 5 + (True,)},
    as_published=lambda hf: {**hf, "architectures": ["Ernie4_5ForCausalLM"]},
)
