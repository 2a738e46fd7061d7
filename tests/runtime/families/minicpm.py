from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_FACTORS = {"short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [9.0] * 4}
_LONG = tuple(
    {"rope_type": "longrope", "original_max_position_embeddings": first, **_FACTORS} for first in (8, 64, 128)
)
TINY: dict[str, Tiny] = {}
TINY["minicpm"] = Tiny(
    "MiniCPMConfig",
    {
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "scale_emb": 3,
        "scale_depth": 1.4,
        "dim_model_base": 32,
    },
    {
        **choices.without(choices.HEADS, "head_dim", "rope_parameters"),
        "num_attention_heads": (4, 8, 8),
        "tie_word_embeddings": (None, False, True),
        "rope_theta": (None, 500.0),
        "rope_scaling": (*(None,) * 3, *(rope for rope in choices.ROPES if rope is not None), *_LONG),
        "scale_emb": (1, 3, 12),
        "scale_depth": (1, 1.4),
        "dim_model_base": (16, 64, 256),
    },
)
