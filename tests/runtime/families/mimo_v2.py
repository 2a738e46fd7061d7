from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _listed(hf: HF) -> HF:
    """As checkpoints have them, and SGLang asks."""
    slides = [int(kind == "sliding_attention") for kind in hf["layer_types"]]
    routes = [int(kind == "sparse") for kind in hf["mlp_layer_types"]]
    return {**_flat(hf), "hybrid_layer_pattern": slides, "moe_layer_freq": routes}


_SHARE = 0.334  # where transformers is told none


def _flat(hf: HF) -> HF:
    """With the base of each kind where neither is stretched."""
    whole = hf["rope_parameters"]
    full, slides = whole["full_attention"], whole["sliding_attention"]
    shares = [one.get("partial_rotary_factor", _SHARE) for one in (full, slides)]
    if shares[0] != shares[1] or any(one["rope_type"] != "default" for one in (full, slides)):
        return hf
    bases = {"rope_theta": full["rope_theta"], "swa_rope_theta": slides["rope_theta"]}
    return {**hf, **bases, "partial_rotary_factor": shares[0], "rope_parameters": None}


_MIMO = {
    **choices.without(choices.HEADS, "tie_word_embeddings", "head_dim"), "num_hidden_layers": (3,),
    "num_key_value_heads": (1, 2), "head_dim": (24, 32), "v_head_dim": (8, 16, 24, 32),
    "tie_word_embeddings": (False,) * 9 + (True,), "attention_bias": (False, True),
    "attention_value_scale": (None, 0.707, 2.0), "sliding_window": (1, 5, 64),
    "layer_types": (
        None, ["full_attention"] * 3, ["sliding_attention"] * 3,
        *(["full_attention", *kinds] for kinds in choices.BOTH_KINDS),
    ),
    "mlp_layer_types": (None, ["dense", "sparse", "sparse"], ["sparse", "dense", "sparse"]),
    **choices.without(choices.SIGMOID, "n_shared_experts", "first_k_dense_replace"),
    "n_group": (1, 2, 2), "topk_group": (1, 1, 1, 2),
    "routed_scaling_factor": (1.0,) * 9 + (2.5, None),
    "rope_parameters": (*(None,) * 9, *choices.ROPES_BY_KIND),
}  # fmt: skip
TINY: dict[str, Tiny] = {}
TINY["mimo_v2_flash"] = Tiny(
    "MiMoV2FlashConfig",
    {
        "head_dim": 24,
        "v_head_dim": 16,
        "sliding_window": 6,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_group": 2,
        "topk_group": 1,
    },
    _MIMO,
    as_published=_listed,
)
