from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["hy_v4"] = Tiny(
    "HYV4Config",
    {
        **sizes.LATENT,
        **sizes.SPARSE,
        "num_hidden_layers": 3,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "indexer_types": ["full", "full", "shared"],
        "swiglu_limit": 0.5,
        "pad_token_id": None,
    },
    {
        **choices.without(choices.LATENT, "first_k_dense_replace"),
        "num_hidden_layers": (4,),
        "index_topk": (4, 16),
        "index_n_heads": (16,),
        "index_head_dim": (8, 16, 32),
        "tie_word_embeddings": (False,) * 19 + (True,),
        "attention_bias": (False,) * 19 + (True,),
        "hidden_act": ("silu",) * 19 + ("gelu",),
        "n_group": (1,) * 19 + (2,),
        "topk_group": (1,),
        "rope_parameters": (
            *({"rope_type": "default", "rope_theta": 500.0},) * 9,
            *({"rope_type": "default", "rope_theta": 1e7},) * 9,
            {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
        ),
        "mlp_layer_types": (None, ["sparse"] * 4, ["dense", "sparse", "dense", "sparse"]),
        "indexer_types": (
            *(None, ["full"] * 4, ["full", "shared", "shared", "full"]),
            ["full", *["shared"] * 3],
        ),
        "swiglu_limit": (0.3, 2.0, 10.0),
        "hc_mult": (1, 2, 3, 4),
        "hc_magnitude": (2.0, 1.0, 0.5),
        "hc_eps": (1e-6, 1e-2),
    },
    renamed={"self_attn.gate_proj": "self_attn.linear_gate"},
)
