from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny, with_count

_KINDS = (
    *([*kinds, "linear_attention"] for kinds in choices.BY_LAYER),
    [*(["indexed_attention"] * 3), "linear_attention"],
)


def _glm5_next(hf: dict[str, Any]) -> dict[str, Any]:
    """With what SGLang asks of a file, and transformers' class has no field for."""
    named = {"architectures": ["Glm5NextForConditionalGeneration"]}
    said = {"mhc": True, "index_kpool_compress": True}
    return {**hf, **named, "text_config": {**with_count(hf["text_config"]), **named, **said}}


TINY: dict[str, Tiny] = {}
TINY["glm5_next"] = Tiny(
    "Glm5NextConfig",
    {
        **sizes.LATENT,
        "qk_rope_head_dim": 0,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "indexed_attention", "linear_attention"],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "swiglu_limit": 0.5,
        "index_topk": 8,
        "index_kpool": 4,
        "index_n_heads": 16,
        "index_head_dim": 16,
        "linear_num_heads": 4,
        "linear_head_dim": 16,
        "linear_lower_bound": -3.0,
        "pad_token_id": None,
    },
    {
        **choices.without(choices.LATENT, "rope_parameters", "qk_rope_head_dim", "first_k_dense_replace"),
        "num_hidden_layers": (4,),
        "tie_word_embeddings": (False,) * 29 + (True,),
        "hidden_act": ("silu",) * 29 + ("gelu",),
        "attention_bias": (False,) * 29 + (True,),
        "layer_types": _KINDS,
        "mlp_layer_types": (
            *(["dense", *(["sparse"] * 3)], ["sparse"] * 4),
            [*(["dense"] * 2), *(["sparse"] * 2)],
        ),
        "swiglu_limit": (0.3, 2.0, 10.0),
        "index_topk": (4, 8, 16),
        "index_kpool": (2, 4) * 9 + (1,),
        "index_n_heads": (16,),
        "index_head_dim": (8, 16),
        "index_kpool_always_select_tail": (True,) * 29 + (False,),
        "indexer_types": (None,) * 29 + (["full", "full", "shared", "full"],),
        "linear_num_heads": (2, 4, 8),
        "linear_head_dim": (8, 16),
        "linear_conv_kernel_dim": (2, 3, 4),
        "linear_lower_bound": (-5.0, -1.0, -0.3, None),
        "hc_mult": (1, 2, 4),
        "hc_sinkhorn_iters": (1, 2, 20),
        "hc_eps": (1e-6, 1e-2),
    },
    tower={**sizes.TOWER, "projection_intermediate_size": 24},
    as_published=_glm5_next,
)
