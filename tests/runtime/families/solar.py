from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["solar"] = Tiny(
    "SolarConfig",
    {
        "num_hidden_layers": 8,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
        "bskcn_1": [1, 5],  # so that two stages need nothing of each other
        "bskcn_2": [1, 4],
        "bskcn_3": [3, 6],
        "bskcn_4": [2, 7],
        "bskcn_tv": [0.9, 0.8],
    },
    {
        **choices.without(choices.HEADS, "num_hidden_layers", "rope_parameters"),
        "rope_scaling": (*(None,) * 3, *(rope for rope in choices.ROPES if rope is not None)),
        "rope_theta": (500.0, 10000.0),
        "attention_bias": (False, True),
        "mlp_bias": (*(False,) * 19, True),
        "bskcn_1": (*([1, 3], [2], [1, 2, 4]) * 6, [0], [3]),
        "bskcn_2": ([1], [2, 3]),
        "bskcn_3": ([3], [4, 6], []),
        "bskcn_4": (*([4], [5, 6]) * 5, [], [1]),
        "bskcn_tv": ([0.9, 0.8], [0.5, 0.3], [0.0, 1.0]),
    },
)
