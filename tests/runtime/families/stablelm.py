from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _with_share(hf: HF) -> HF:
    """As published, where SGLang looks for it."""
    return {**hf, "partial_rotary_factor": hf["rope_parameters"]["partial_rotary_factor"]}


TINY: dict[str, Tiny] = {}
TINY["stablelm"] = Tiny(
    "StableLmConfig",
    {"partial_rotary_factor": 0.5, "use_qkv_bias": True},
    {
        **choices.without(choices.HEADS, "rms_norm_eps", "head_dim", "tie_word_embeddings"),
        "layer_norm_eps": (1e-6, 1e-2),
        "use_qkv_bias": (False, True),
        "partial_rotary_factor": (0.25, 0.5, 1.0),
        "qk_layernorm": (*(False,) * 9, True),
        "use_parallel_residual": (*(False,) * 9, True),
        "tie_word_embeddings": (*(False,) * 9, True),
        "rope_parameters": (*choices.ROPES[:2] * 4, *choices.ROPES[2:4], choices.ROPES[-1]),
    },
    as_published=_with_share,
)
