from __future__ import annotations

from typing import Any

from tests.runtime.families.tiny import Tiny

SIZES = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
APART = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "max_position_embeddings"),
)
SPACE: dict[str, tuple[Any, ...]] = {
    "n_layer": (1, 2, 3),
    "n_head": (4, 8),
    "n_inner": (None, 48, 96),
    "n_positions": (48, 128),
    "layer_norm_epsilon": (1e-6, 1e-2),
    "scale_attn_weights": (*(True,) * 24, False),
    "tie_word_embeddings": (*(True,) * 24, False),
}
TINY: dict[str, Tiny] = {}
TINY["gpt2"] = Tiny(
    "GPT2Config",
    SIZES,
    {
        **SPACE,
        "activation_function": (*("gelu_new",) * 24, "gelu"),
        "reorder_and_upcast_attn": (*(False,) * 24, True),
        "scale_attn_by_inverse_layer_idx": (*(False,) * 24, True),
    },
    spelled_apart=APART,
)
