from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {
    "moss_vl_text": Tiny(
        "MossVLTextConfig",
        {
            **{"num_hidden_layers": 4, "cross_attention_layers": [1, 2], "head_dim": 16},
            **{"rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": False},
        },
        {
            **choices.without(choices.HEADS, "num_hidden_layers", "rope_parameters"),
            **choices.NO_TIE,
            "num_hidden_layers": (2, 3, 5),
            "num_key_value_heads": (1, 2, 4, 4, 4),
            "head_dim": (8, 16, 32),
            "attention_bias": (False, True),
            "rope_theta": (500.0, 10000.0),
            "cross_attention_layers": ([], [0], [0], [1], [1], [1], [1, 2], [0, 3, 9]),
        },
    )
}
