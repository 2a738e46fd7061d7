from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_TEXT = {
    **choices.without(choices.HEADS, "num_hidden_layers"),
    **choices.NO_TIE,
    **choices.NO_BIAS,
    "num_hidden_layers": (2, 4, 5),
    "num_key_value_heads": (1, 2, 4, 4, 4),
    "head_dim": (*(None,) * 9, 8),
    "cross_attention_layers": (None, [], [0], [0], [1], [1], [1], [0, 3, 9], [1, 2]),
    "mlp_bias": (*(None,) * 9, True),
}
TINY: dict[str, Tiny] = {}
TINY["mllama_text_model"] = Tiny(
    "MllamaTextConfig",
    {"num_hidden_layers": 4, "cross_attention_layers": [1, 2], "pad_token_id": 0},
    _TEXT,
)
TINY["mllama"] = Tiny(
    "MllamaConfig",
    {**TINY["mllama_text_model"].sizes},
    _TEXT,
    tower={
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_global_layers": 2,
        "attention_heads": 4,
        "intermediate_size": 32,
        "image_size": 28,
        "patch_size": 7,
        "intermediate_layers_indices": [0, 2],
        "vision_output_dim": 72,
    },
)
