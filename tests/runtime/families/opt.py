from __future__ import annotations

from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["opt"] = Tiny(
    "OPTConfig",
    {"ffn_dim": 96, "word_embed_proj_dim": 64},
    {
        "num_hidden_layers": (1, 2, 3),
        "num_attention_heads": (4, 8),
        "ffn_dim": (48, 96),
        "max_position_embeddings": (48, 128),
        "activation_function": (*("relu",) * 9, *("gelu",) * 9, "gelu_new"),
        "enable_bias": (True, True, False),
        "layer_norm_elementwise_affine": (True, True, False),
        "do_layer_norm_before": (True, False),
        "word_embed_proj_dim": (64, 32, 96),
        "tie_word_embeddings": (True, False),
    },
    spelled_apart=("num_key_value_heads", "intermediate_size"),
)
