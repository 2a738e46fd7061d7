from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["qwen2"] = Tiny(
    "Qwen2Config",
    {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    {**choices.HEADS, **choices.OPTIONAL_WINDOW, "max_window_layers": (0, 1, 9)},
)
TINY["qwen2_moe"] = Tiny(
    "Qwen2MoeConfig",
    {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
    },
    {
        **choices.HEADS,
        **choices.OPTIONAL_WINDOW,
        **choices.EXPERTS,
        **choices.NO_TIE,
        "head_dim": (*(None,) * 9, 8),
        "max_window_layers": (0, 1, 9),
        "qkv_bias": (False, True),
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "shared_expert_intermediate_size": (16, 48),
        "norm_topk_prob": (False, True),
        **choices.ALL_SPARSE,
    },
)
TINY["qwen3"] = Tiny(
    "Qwen3Config",
    {"head_dim": 32, "tie_word_embeddings": True},
    {
        **choices.HEADS,
        **choices.OPTIONAL_WINDOW,
        "head_dim": (8, 32),
        "max_window_layers": (0, 1, 9),
        "attention_bias": (False, True),
    },
)
TINY["qwen3_moe"] = Tiny(
    "Qwen3MoeConfig",
    {**sizes.QWEN_MOE, "norm_topk_prob": True},
    {
        **choices.HEADS,
        **choices.OPTIONAL_WINDOW,
        **choices.EXPERTS,
        **choices.NO_TIE,
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "attention_bias": (False, True),
        **choices.ALL_SPARSE,
        "norm_topk_prob": (False, True),
    },
)
