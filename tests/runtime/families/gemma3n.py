from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.sizes import VOCAB
from tests.runtime.families.tiny import Tiny

_BEHIND, _FULL = "sliding_attention", "full_attention"
_GEMMA3N: dict[str, tuple[Any, ...]] = {
    **choices.without(choices.HEADS, "hidden_act", "num_hidden_layers"), "head_dim": (8, 16, 32),
    "hidden_activation": ("gelu_pytorch_tanh",) * 19 + ("gelu",),
    "tie_word_embeddings": (True,) * 19 + (False,),
    "intermediate_size": (48, 96, [48, 96, 64, 32]),
    "attention_bias": (False, False, True), "sliding_window": (1, 5, 64),
    "layer_types": (
        *([_BEHIND, _FULL] * 2,) * 6, *([_FULL, _BEHIND] * 2, [_FULL] * 4, [_BEHIND] * 4),
        [_BEHIND] * 2 + [_FULL, _BEHIND],
    ),
    "num_kv_shared_layers": (0, 0, 1, 2, 2, 2), "final_logit_softcapping": (5.0, 30.0),
    "vocab_size_per_layer_input": (VOCAB, VOCAB - 9), "hidden_size_per_layer_input": (4, 8),
    "altup_num_inputs": (1, 2, 3, 4, 4), "altup_active_idx": (0,) * 9 + (1,),
    "altup_correct_scale": (True, True, False), "altup_coef_clip": (120.0, 0.1), "laurel_rank": (4, 8),
    "activation_sparsity_pattern": (None, [0.95, 0.5, 0.0, 0.9], [0.3] * 4),
    "rope_parameters": (None, *choices.ropes_by_kind({"rope_type": "default"}, {"rope_theta": 500.0})[:2]) * 6
    + choices.ROPES_BY_KIND[2:4],
}  # fmt: skip
TINY: dict[str, Tiny] = {}
TINY["gemma3n_text"] = Tiny(
    "Gemma3nTextConfig",
    {
        "head_dim": 16,
        "sliding_window": 6,
        "num_hidden_layers": 4,
        "layer_types": [_FULL, _BEHIND, _FULL, _FULL],
        "num_kv_shared_layers": 1,  # in one stage of two
        "final_logit_softcapping": 5.0,
        "intermediate_size": [96, 96, 64, 64],
        "vocab_size_per_layer_input": VOCAB,
        "hidden_size_per_layer_input": 8,
        "altup_num_inputs": 3,
        "laurel_rank": 8,
        "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0],
        "tie_word_embeddings": True,
    },
    _GEMMA3N,
)
