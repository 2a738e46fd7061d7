from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny
from tests.runtime.phi3_small import as_published

TINY: dict[str, Tiny] = {}
TINY["phi3small"] = Tiny(
    "Phi3SmallConfig",
    {"num_key_value_heads": 2, "ff_intermediate_size": 96, "mup_embedding_multiplier": 3.0},
    {
        **choices.without(
            choices.HEADS, "hidden_act", "head_dim", "intermediate_size", "rms_norm_eps", "rope_parameters"
        ),
        "ff_intermediate_size": (48, 96),
        "ff_dim_multiplier": (*(None,) * 8, 1),
        "gegelu_pad_to_256": (True, False),
        "layer_norm_epsilon": (1e-6, 1e-2),
        "hidden_act": (*("gegelu",) * 19, "silu"),
        "mup_use_scaling": (True, False),
        "mup_attn_multiplier": (1.0, 2.5),
        "mup_embedding_multiplier": (None, 0.0, 1.5, 10.0),
        "mup_width_multiplier": (1.0, 8.0),
        "gegelu_limit": (2.0, 20.0),
        "rope_embedding_base": (500.0, 10**6),
        "rope_position_scale": (*(1.0,) * 19, 2.0),
        "dense_attention_every_n_layers": (1, 2),
        "blocksparse_block_size": (*(64,) * 19, 32),
    },
    as_published=as_published,
    spelled_apart=("intermediate_size",),
)
