from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.qwen_hybrid import DELTA, DELTA_CHOICES
from tests.runtime.families.tiny import Tiny

_ROPES = tuple({"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": share} for share in (
    0.25, 0.5, 1.0,
))  # fmt: skip
_KINDS = (
    ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
    ["indexed_attention", "linear_attention", "indexed_attention", "linear_attention"],
    ["full_attention", *(["linear_attention"] * 3)],
)
_NGRAMS: dict[str, Any] = {
    "eos_token_id": 7,
    "ple_layer_ids": [1],
    "ple_embed_dim": 24,
    "ngram_vocab_size_base": 50,
    "heads_per_ngram": 2,
    "split_ngram_parts": 4,
}
_SIZES = {
    **DELTA,
    **sizes.QWEN_MOE,
    "shared_expert_intermediate_size": 48,
    "layer_types": ["linear_attention", "indexed_attention"],
    "rope_parameters": _ROPES[0],
    "hc_count": 3,
    "hc_lowrank": 12,
    "indexer_n_heads": 8,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
    **_NGRAMS,
}
_SPACE: dict[str, tuple[Any, ...]] = {
    **choices.without(choices.HEADS, "intermediate_size"),
    **choices.EXPERTS,
    **choices.without(DELTA_CHOICES, "partial_rotary_factor", "full_attention_interval"),
    "num_hidden_layers": (4,),
    "hidden_act": ("silu",) * 29 + ("gelu",),
    "rope_parameters": (*_ROPES * 5, {**_ROPES[1], "rope_type": "yarn", "factor": 4.0}, None),
    "head_dim": (8, 16),
    "layer_types": _KINDS,
    "num_experts": (4, 8),
    "moe_intermediate_size": (16, 32),
    "norm_topk_prob": (False, True),
    "shared_expert_intermediate_size": (16, 48),
    "output_gate_type": (None, "silu", "sigmoid"),
    "hc_count": (2, 4),
    "hc_lowrank": (5, 16),
    "indexer_n_heads": (1, 2, 8),
    "indexer_head_dim": (16, 24),
    "indexer_budget": (4, 8, 12, 64),
    "indexer_compress_ratio": (2, 4),
    "ple_layer_ids": ([], [2], [4], [2, 4], [2, 4]),
    "ple_embed_dim": (None, 24, 48),
    "ple_conv_kernel_size": (2, 3, 4),
    "ngram_size": (2, 3),
    "heads_per_ngram": (1, 2),
    "ngram_vocab_size_base": (1, 50, 301),
    "make_ngram_vocab_size_divisible_by": (1, 16),
    "seed": (1, 1234),
    "split_ngram_parts": (1, 3, 8),
}


def _published(hf: dict[str, Any]) -> dict[str, Any]:
    """SGLang's class has merged layers of its tower where a file does not say that there are none."""
    return {**hf, "vision_config": {**hf["vision_config"], "deepstack_visual_indexes": []}}


TINY: dict[str, Tiny] = {}
TINY["qwen4_exp_text"] = Tiny("Qwen4ExpTextConfig", _SIZES, _SPACE)
_TOWER = {**sizes.TOWER, "num_position_embeddings": 64}
TINY["qwen4_exp"] = Tiny("Qwen4ExpConfig", _SIZES, _SPACE, tower=_TOWER, as_published=_published)
