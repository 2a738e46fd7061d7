from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RARE = 40
_ROPE = {"rope_type": "default", "rope_theta": 500.0}
_PARTS = "xllm_source_router_gemm_partitions"
_SIZES: dict[str, Any] = {
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "rope_parameters": _ROPE,
    "layernorm_num_groups": 2,
    "mlp_only_layers": [0],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 32,
    "moe_gate_bias": True,
    "norm_topk_prob": True,
    "router_scaling_factor": 2.5,
    "mova_num_experts": 6,
    "mova_num_experts_per_tok": 2,
    "attention_gate_func": "softplus",
    _PARTS: 2,
}
_SPACE: dict[str, tuple[Any, ...]] = {
    **choices.without(choices.HEADS, "rope_parameters", "hidden_act", "tie_word_embeddings"),
    "head_dim": (8, 16, 32),
    "rope_head_dim": (None,) * _RARE + (4,),
    "rope_parameters": (_ROPE,) * _RARE + ({"rope_type": "yarn", "rope_theta": 9.0, "factor": 2.0},),
    "layernorm_num_groups": (None, 1, 2, 4),
    "query_key_norm": (None,) * _RARE + (True,),
    "num_experts": (8, 16),
    "num_experts_per_tok": (1, 2, 3),
    "num_shared_experts": (None, 0, 1, 2),
    "moe_gate_bias": (None, True, False),
    "norm_topk_prob": (True, False),
    "router_score_func": (None,) * _RARE + ("softmax",),
    "router_scaling_factor": (None, 1.0, 1.7),
    "mlp_only_layers": ([], [0], [0, 1]),
    "mova_num_experts": (4, 8),
    "mova_num_experts_per_tok": (1, 2, 3),
    "attention_gate_func": ("silu", "softplus"),
    _PARTS: (None, 1, 2),
    "attention_bias": (None,) * _RARE + (True,),
}

TINY: dict[str, Tiny] = {"k2_horizon": Tiny("LlamaConfig", _SIZES, _SPACE)}
