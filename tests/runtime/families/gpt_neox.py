from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_ROPES = (
    None,
    *(
        {**one, "rope_theta": 700.0, "partial_rotary_factor": share}
        for one in choices.ROPES[1:8]
        if one is not None
        for share in (0.25, 0.5, 1.0)
    ),
)
TINY: dict[str, Tiny] = {}
TINY["gpt_neox"] = Tiny(
    "GPTNeoXConfig",
    {},
    {
        **choices.without(choices.HEADS, "rms_norm_eps", "head_dim", "num_key_value_heads"),
        "layer_norm_eps": (1e-6, 1e-2),
        "hidden_act": (*("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu") * 3, "silu"),
        "use_parallel_residual": (None, False, True),
        "attention_bias": (None, False, True),
        "rope_parameters": _ROPES,
    },
    spelled_apart=("num_key_value_heads",),
)
