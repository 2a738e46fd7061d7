from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

DELTA = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
DELTA_CHOICES: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (3,),
    "head_dim": (8, 16, 32),
    "attention_bias": (False, True),
    "linear_num_key_heads": (1, 2, 4),
    "linear_num_value_heads": (4, 8),
    "linear_key_head_dim": (4, 8, 16),
    "linear_value_head_dim": (8, 16),
    "linear_conv_kernel_dim": (2, 3, 4),
    "layer_types": (None, *choices.BY_LAYER),
    "full_attention_interval": (None, 1, 2, 3),
    "partial_rotary_factor": (None, 0.25, 0.5, 1.0),
}
TINY: dict[str, Tiny] = {}
TINY["qwen3_next"] = Tiny(
    "Qwen3NextConfig",
    {
        **DELTA,
        **sizes.QWEN_MOE,
        "shared_expert_intermediate_size": 48,
        "full_attention_interval": 2,
    },
    {
        **choices.HEADS,
        **choices.EXPERTS,
        **DELTA_CHOICES,
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "norm_topk_prob": (False, True),
        "shared_expert_intermediate_size": (16, 48),
        "decoder_sparse_step": (1, 2),
        "mlp_only_layers": ([], [0], [1, 2]),
    },
)
TINY["qwen3_5_text"] = Tiny(
    "Qwen3_5TextConfig",
    {**DELTA, "head_dim": 32, "full_attention_interval": 2},
    {**choices.HEADS, **DELTA_CHOICES},
)
TINY["qwen3_5_moe_text"] = Tiny(
    "Qwen3_5MoeTextConfig",
    {
        **DELTA,
        **sizes.QWEN_MOE,
        "shared_expert_intermediate_size": 48,
        "full_attention_interval": 2,
    },
    {
        **choices.without(choices.HEADS, "intermediate_size"),
        **choices.EXPERTS,
        **DELTA_CHOICES,
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "shared_expert_intermediate_size": (16, 48),
    },
)
TINY["qwen3_5"] = Tiny(
    "Qwen3_5Config",
    {**TINY["qwen3_5_text"].sizes},
    {**choices.HEADS, **DELTA_CHOICES},
    tower={**sizes.TOWER, "num_position_embeddings": 64},
)
TINY["qwen3_5_moe"] = Tiny(
    "Qwen3_5MoeConfig",
    {**TINY["qwen3_5_moe_text"].sizes},
    {**choices.without(choices.HEADS, "intermediate_size"), **choices.EXPERTS, **DELTA_CHOICES},
    tower={**sizes.TOWER, "num_position_embeddings": 64},
)
