from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_LLAMA4 = {
    **choices.HEADS, "num_hidden_layers": (3, 4, 5), "head_dim": (8, 16, 32), **choices.NO_BIAS,
    "intermediate_size": (24, 48), "intermediate_size_mlp": (48, 96),
    "num_experts_per_tok": (1, 1, 2), "num_local_experts": (4, 8),
    "moe_layers": (*(None,) * 9, [0]), "interleave_moe_layer_step": (1, 2), "use_qk_norm": (False, True),
    "no_rope_layers": (*([],) * 9, [1, 0, 1, 1, 1]), "no_rope_layer_interval": (*(4,) * 9, 2),
    "attention_chunk_size": (4, 7, 64), "attn_temperature_tuning": (False, True),
    "floor_scale": (4, 8192), "attn_scale": (0.1, 0.5),
}  # fmt: skip
TINY: dict[str, Tiny] = {}
TINY["llama4_text"] = Tiny(
    "Llama4TextConfig",
    {
        "head_dim": 16,
        "intermediate_size": 48,
        "intermediate_size_mlp": 96,
        "num_local_experts": 8,
        "interleave_moe_layer_step": 2,
        "num_hidden_layers": 4,
        "attention_chunk_size": 6,
        "floor_scale": 4,
    },
    _LLAMA4,
)
TINY["llama4"] = Tiny(
    "Llama4Config",
    {**TINY["llama4_text"].sizes},
    _LLAMA4,
    tower={
        **sizes.PIXTRAL,
        "image_size": 56,
        "projector_input_dim": 24,
        "projector_output_dim": 24,
        "vision_output_dim": 24,
    },
)
