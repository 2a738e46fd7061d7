"""What may vary in random models of several families. None stands for what is left out, or is none."""

from __future__ import annotations

from typing import Any

ROPES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    {"rope_type": "yarn", "factor": 2.0, "beta_fast": 16.0, "beta_slow": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "attention_factor": 0.7},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
)  # fmt: skip


def without(space: dict[str, tuple[Any, ...]], *names: str) -> dict[str, tuple[Any, ...]]:
    return {name: choices for name, choices in space.items() if name not in names}


COMMON: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (1, 2, 3),
    "num_attention_heads": (4, 8),
    "intermediate_size": (48, 96),
    "rms_norm_eps": (1e-6, 1e-2),
    "tie_word_embeddings": (False, True),
    "rope_parameters": ROPES,
    "hidden_act": (*("silu",) * 9, "gelu"),
}
HEADS = {**COMMON, "num_key_value_heads": (1, 2, 4), "head_dim": (8, 16, 32, None)}
WINDOW: dict[str, tuple[Any, ...]] = {"sliding_window": (None, 1, 5, 64)}
OPTIONAL_WINDOW = {**WINDOW, "use_sliding_window": (False, True)}
BOTH_KINDS = (["sliding_attention", "full_attention"], ["full_attention", "sliding_attention"])
BY_LAYER = (
    ["linear_attention", "full_attention", "linear_attention"],
    ["full_attention", "linear_attention", "linear_attention"],
)


def ropes_by_kind(*ropes: dict[str, Any] | None) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "full_attention": {"rope_theta": 900.0, **rope},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
        }
        for rope in ropes
        if rope is not None
    )


ROPES_BY_KIND = ropes_by_kind(*ROPES)
EXPERTS = {"num_experts_per_tok": (1, 2, 3)}
SIGMOID: dict[str, tuple[Any, ...]] = {
    **EXPERTS,
    "n_routed_experts": (8, 16),
    "moe_intermediate_size": (16, 32),
    "n_shared_experts": (1, 2),
    "routed_scaling_factor": (1.0, 2.5),
    "n_group": (1, 2, 4),
    "topk_group": (1, 2),
    "norm_topk_prob": (True, False),
    "first_k_dense_replace": (0, 1, 9),
    "attention_bias": (False, True),
}
# Of classes that have experts in every layer, whatever is told.
ALL_SPARSE = {"decoder_sparse_step": (*(1,) * 19, 2), "mlp_only_layers": (*([],) * 19, [0])}
NO_BIAS = {"attention_bias": (*(False,) * 19, True)}  # of classes that have none
NO_TIE = {"tie_word_embeddings": (*(False,) * 9, True)}  # ... that have a head apart
LATENT: dict[str, tuple[Any, ...]] = {
    **COMMON,
    **SIGMOID,
    **NO_BIAS,
    "num_attention_heads": (4,),
    "num_key_value_heads": (4,),
    "kv_lora_rank": (16, 32),
    "q_lora_rank": (16, 24),
    "qk_nope_head_dim": (8, 16),
    "qk_rope_head_dim": (4, 8),
    "v_head_dim": (8, 16, 24),
}
SECTIONS, HALF_SECTIONS = (
    tuple(
        {"rope_theta": 500.0, **(rope or {"rope_type": "default"}), "mrope_section": sections}
        for rope in ROPES
        if rope is None or "partial_rotary_factor" not in rope
        for sections in choices
    )
    for choices in ([[2, 3, 3], [4, 2, 2]], [[1, 1, 2], [2, 1, 1]])
)
WITH_SECTIONS = {**HEADS, "head_dim": (None,), "num_attention_heads": (4,), "rope_parameters": SECTIONS}
MSCALES = tuple(
    {**rope, "mscale": 1.0, "mscale_all_dim": share} if rope and rope["rope_type"] == "yarn" else rope
    for rope in ROPES
    for share in (1.0, 0.707)
)
SPARSE = {
    "index_topk": (4, 16),
    "index_n_heads": (16,),
    "index_head_dim": (16, 32),
    "mlp_layer_types": (None,),
}
GRANITE = {
    **HEADS, "head_dim": (None, 8, 32), **NO_BIAS,
    "embedding_multiplier": (1.0, 12.0), "logits_scaling": (1.0, 8.0, 0.25),
    "residual_multiplier": (1.0, 0.22), "attention_multiplier": (0.1, 0.4),
}  # fmt: skip
WHOLE_ROPES = tuple(
    {"rope_theta": 10000.0, **({"original_max_position_embeddings": 128} if kind == "yarn" else {}), **rope}
    for rope in ROPES
    if rope is not None
    for kind in (rope["rope_type"],)
)
BAILING = {
    **without(HEADS, "rope_parameters"), **EXPERTS,
    "rope_scaling": (None,) * 3 + tuple(rope for rope in ROPES if rope is not None),
    "rope_theta": (None, 500.0), "partial_rotary_factor": (None, 0.5, 0.25, 1.0), "rotary_dim": (4, 8, 32),
    "use_bias": (None,) * 19 + (True,), "use_qkv_bias": (None, False, True), "norm_head": (None, False, True),
    "num_experts": (8, 16), "moe_intermediate_size": (16, 32), "norm_topk_prob": (True, False),
    "moe_shared_expert_intermediate_size": (None, 16, 48), "first_k_dense_replace": (None, 0, 1, 9),
    "routed_scaling_factor": (None, 2.5), "router_dtype": (None,) * 4 + ("fp32",) * 4 + ("bf16",),
    "use_rmsnorm": (None, True), "multi_gate": (None,) * 19 + (True,),
}  # fmt: skip
