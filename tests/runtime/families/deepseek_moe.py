from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["deepseek"] = Tiny(
    "DeepseekConfig",
    {
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 32,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
    },
    {
        **choices.without(choices.HEADS, "rope_parameters", "head_dim"),
        **choices.EXPERTS,
        "tie_word_embeddings": (False,) * 19 + (True,),
        "n_routed_experts": (8, 16, *(8,) * 6, None),
        "moe_intermediate_size": (16, 32),
        "n_shared_experts": (None, 1, 2, 2, 3),
        "first_k_dense_replace": (None, 0, 1, 9),
        "moe_layer_freq": (None, 1, 2),
        "norm_topk_prob": (None, False, True),
        "scoring_func": (*(None, "softmax") * 9, "sigmoid"),
        "attention_bias": (*(None, False) * 9, True),
        "rope_theta": (None, 500.0),
        "rope_scaling": (None,) * 6 + choices.ROPES[1:5],
    },
)
