from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_V4_ROPES = tuple(
    {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": 32, **betas}
    for factor in (4.0, 16.0)
    for betas in ({}, {"beta_fast": 32, "beta_slow": 1}, {"beta_fast": 16.0, "beta_slow": 2.0})
)


def _deepseek_v4(hf: dict[str, Any]) -> dict[str, Any]:
    """Under the names that transformers takes, and writes as others."""
    ratios = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    kept = {name: value for name, value in hf.items() if name not in ("rope_parameters", "mlp_layer_types")}
    compress = hf["rope_parameters"]["compress"]
    stretch = {
        name: compress[name] for name in compress if name not in ("rope_theta", "partial_rotary_factor")
    }
    return {
        **kept,
        "compress_ratios": [ratios[kind] for kind in kept.pop("layer_types")],
        "num_hash_layers": hf["mlp_layer_types"].count("hash_moe"),
        "rope_scaling": stretch,
    }


TINY: dict[str, Tiny] = {}
TINY["deepseek_v4"] = Tiny(
    "DeepseekV4Config",
    {
        "num_hidden_layers": 3,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "qk_rope_head_dim": 8,
        "q_lora_rank": 24,
        "o_groups": 2,
        "o_lora_rank": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "swiglu_limit": 0.5,
        "sliding_window": 6,
        "compress_ratios": [0, 4, 128],
        "num_hash_layers": 1,
        "index_n_heads": 16,
        "index_head_dim": 16,
        "index_topk": 2,
        "rope_scaling": {**sizes.YARN, "rope_type": "yarn"},
    },
    {
        "num_hidden_layers": (3,),
        "num_attention_heads": (4, 8),
        "head_dim": (16, 32),
        "intermediate_size": (16, 32),
        "rms_norm_eps": (1e-6, 1e-2),
        "hidden_act": (*("silu",) * 9, "gelu"),
        "tie_word_embeddings": (False, True),
        "qk_rope_head_dim": (4, 8),
        "q_lora_rank": (16, 24),
        "o_groups": (1, 2, 4),
        "o_lora_rank": (8, 16),
        "n_routed_experts": (8, 16),
        **choices.EXPERTS,
        "routed_scaling_factor": (1.0, 1.5),
        "swiglu_limit": (0.3, 2.0, 10.0),
        "sliding_window": (1, 6, 64),
        "compress_ratios": ([0, 4, 128], [4, 4, 0], [128, 4, 4], [0, 0, 0], [4, 0, 4]),
        "num_hash_layers": (0, 1, 3),
        "index_n_heads": (16,),
        "index_head_dim": (8, 16),
        "index_topk": (1, 2, 9),
        "hc_mult": (1, 2, 4),
        "hc_sinkhorn_iters": (1, 2, 20),
        "hc_eps": (1e-6, 1e-2),
        "compress_rope_theta": (160000.0, 300.0),
        "rope_theta": (10000.0, 500.0),
        "rope_scaling": (*_V4_ROPES, *_V4_ROPES, *(rope for rope in choices.ROPES if rope is not None)),
    },
    as_published=_deepseek_v4,
)
