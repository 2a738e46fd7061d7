from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["granitemoehybrid"] = Tiny(
    "GraniteMoeHybridConfig",
    {
        **sizes.GRANITE,
        "layer_types": ["linear_attention", "full_attention"],
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "intermediate_size": 32,
        "shared_intermediate_size": 48,
        "mamba_n_heads": 8,
        "mamba_n_groups": 4,
        "mamba_d_state": 16,
    },
    {
        **choices.without(choices.GRANITE, "head_dim"),
        "num_hidden_layers": (3,),
        "layer_types": choices.BY_LAYER,
        "num_local_experts": (0, 4, 8),
        **choices.EXPERTS,
        "intermediate_size": (16, 32),
        "shared_intermediate_size": (16, 48),
        "position_embedding_type": (None, "rope"),
        "mamba_n_heads": (4, 8),
        "mamba_n_groups": (1, 2, 4),
        "mamba_d_state": (8, 16),
        "mamba_d_conv": (2, 3, 4),
        "mamba_expand": (1, 2),
        "mamba_chunk_size": (4, 8, 128),
        "mamba_conv_bias": (False, True),
        "mamba_proj_bias": (False, True),
        "time_step_limit": (None,) * 5 + ((0.1, 0.5),),
    },
)
