from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny


def _with_share(hf: HF) -> HF:
    """As published, where SGLang looks for it."""
    return {**hf, "partial_rotary_factor": hf["rope_parameters"]["partial_rotary_factor"]}


TINY: dict[str, Tiny] = {}
TINY["phi"] = Tiny(
    "PhiConfig",
    {"num_key_value_heads": 4, "intermediate_size": 256, "partial_rotary_factor": 0.5},
    {
        **choices.without(choices.HEADS, "rms_norm_eps", "head_dim", "intermediate_size"),
        "num_attention_heads": (4,),
        "num_key_value_heads": (*(4,) * 9, 2),
        "intermediate_size": (*(256,) * 9, 96),
        "layer_norm_eps": (1e-6, 1e-2),
        "hidden_act": (*("gelu_new",) * 5, *("gelu_pytorch_tanh",) * 4, "silu"),
        "partial_rotary_factor": (0.25, 0.5, 1.0),
        "qk_layernorm": (*(False,) * 9, True),
        "tie_word_embeddings": (*(False,) * 9, True),
        "rope_parameters": (*choices.ROPES[:2] * 4, *choices.ROPES[2:4], choices.ROPES[-1]),
    },
    as_published=_with_share,
)
