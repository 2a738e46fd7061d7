from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _normed(hf: HF) -> HF:
    """As checkpoints have it; transformers' classes norm whatever is said."""
    said = {"use_mixed_mlp_moe": True, "num_shared_expert": 1}
    experts = {"moe_intermediate_size": hf["intermediate_size"], **said} if "moe_topk" in hf else {}
    return {**hf, "use_qk_norm": True, **experts}


TINY: dict[str, Tiny] = {}
TINY["hunyuan_v1_dense"] = Tiny(
    "HunYuanDenseV1Config",
    {"head_dim": 16},
    {
        **choices.HEADS,
        "head_dim": (8, 16, 32),
        "attention_bias": (False, True),
        "rope_parameters": (
            *choices.ROPES,
            {"rope_type": "dynamic", "rope_theta": 900.0, "factor": 1.0, "alpha": 50.0},
        ),
    },
    as_published=_normed,
)
TINY["hunyuan_v1_moe"] = Tiny(
    "HunYuanMoEV1Config",
    {"head_dim": 16, "num_experts": 8, "moe_topk": 2, "intermediate_size": 32},
    {
        **choices.HEADS,
        **choices.without(choices.EXPERTS, "num_experts_per_tok"),
        "head_dim": (8, 16, 32),
        "attention_bias": (False, True),
        "intermediate_size": (16, 48),
        "num_experts": (4, 8),
        "moe_topk": (1, 2, 3, [2, 2, 2], [1, 2, 3]),
        "rope_parameters": (
            *choices.ROPES,
            {"rope_type": "dynamic", "rope_theta": 900.0, "factor": 1.0, "alpha": 50.0},
        ),
    },
    as_published=_normed,
)
