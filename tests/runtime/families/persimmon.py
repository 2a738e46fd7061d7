from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _with_share(hf: HF) -> HF:
    """As published, where SGLang looks for it."""
    return {**hf, "partial_rotary_factor": hf["rope_parameters"]["partial_rotary_factor"]}


TINY: dict[str, Tiny] = {}
TINY["persimmon"] = Tiny(
    "PersimmonConfig",
    {"partial_rotary_factor": 0.5},
    {
        **choices.without(choices.COMMON, "rms_norm_eps"),
        "hidden_act": (*("relu2",) * 9, "silu"),
        "layer_norm_eps": (*(1e-5,) * 4, 1e-2),
        "partial_rotary_factor": (0.25, 0.5, 1.0),
        "qk_layernorm": (False, True),
        "tie_word_embeddings": (*(False,) * 9, True),
        "rope_parameters": (*choices.ROPES[:2] * 4, *choices.ROPES[2:4]),
    },
    spelled_apart=("num_key_value_heads",),
    as_published=_with_share,
)
