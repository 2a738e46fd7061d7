from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny, with_count

_COHERE = {
    **choices.without(choices.HEADS, "rms_norm_eps", "head_dim", "tie_word_embeddings"),
    "layer_norm_eps": (1e-6, 1e-2),
    "logit_scale": (0.0625, 1.0, 3.0), "attention_bias": (False,) * 9 + (True,),
    "tie_word_embeddings": (None,) * 9 + (False,),
}  # fmt: skip
_COHERE_MOE = {
    **_COHERE, **choices.EXPERTS, "num_hidden_layers": (3,), "head_dim": (8, 16, 32, None),
    "rope_parameters": choices.WHOLE_ROPES,
    "layer_types": (None, None, *([*kinds, kinds[1]] for kinds in choices.BOTH_KINDS)),
    "sliding_window": (5, 1, 64) * 6 + (None,), "sliding_window_pattern": (1, 2, 4),
    "first_k_dense_replace": (None, 1, 2), "prefix_dense_sliding_window_pattern": (1, 1, 2),
    "prefix_dense_intermediate_size": (24, 72) * 6 + (None,), "intermediate_size": (16, 32),
    "mlp_layer_types": (None,) * 9 + (["sparse", "dense", "sparse"],), "num_experts": (4, 8),
    "num_shared_experts": (0, 1, 2), "shared_expert_combination_strategy": ("average", "sum"),
    "expert_selection_fn": ("sigmoid", "softmax"), "norm_topk_prob": (True,) * 3 + (False,),
    "rms_norm_eps": (None, None, 1e-6, 1e-2),
}  # fmt: skip


def _cohere2_vision(hf: dict[str, Any]) -> dict[str, Any]:
    return {**hf, "text_config": with_count(hf["text_config"])}


TINY: dict[str, Tiny] = {}
TINY["cohere"] = Tiny(
    "CohereConfig",
    {"logit_scale": 0.3, "pad_token_id": None},
    {**_COHERE, "use_qk_norm": (False,) * 9 + (True,)},
)
TINY["cohere2"] = Tiny(
    "Cohere2Config",
    {
        "logit_scale": 0.3,
        "pad_token_id": None,
        "sliding_window": 6,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    {
        **_COHERE,
        "num_hidden_layers": (3,),
        "sliding_window": (1, 5, 64),
        "layer_types": (*([*kinds, kinds[1]] for kinds in choices.BOTH_KINDS), ["sliding_attention"] * 3),
    },
)
TINY["cohere2_moe"] = Tiny(
    "Cohere2MoeConfig",
    {
        "logit_scale": 0.3,
        "pad_token_id": None,
        "head_dim": 32,
        "sliding_window": 6,
        "first_k_dense_replace": 1,
        "prefix_dense_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_shared_experts": 2,
        "expert_selection_fn": "sigmoid",
    },
    _COHERE_MOE,
    as_published=with_count,
)
TINY["cohere2_vision"] = Tiny(
    "Cohere2VisionConfig",
    {
        "model_type": "cohere2_moe",
        **TINY["cohere2_moe"].sizes,
        "logit_scale": 1.0,
        "tie_word_embeddings": True,
    },
    {**choices.without(_COHERE_MOE, "logit_scale"), "tie_word_embeddings": (None,) * 9 + (False,)},
    tower={**sizes.PIXTRAL, "model_type": "siglip_vision_model", "image_size": 112, "patch_size": 14},
    beside={"alignment_intermediate_size": 24},
    as_published=_cohere2_vision,
)
