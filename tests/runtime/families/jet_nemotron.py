from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_RARE = 19


def _parts(window: int = 5, **block: Any) -> dict[str, Any]:
    usual = {"mode": "chunk", "expand_v": 2, "num_heads": 4, "head_dim": 16, "norm_eps": "1e-5"}
    taps = {"conv_size": 4, "dconv_generator_reduction": 8, "dconv_implementation": "triton"}
    return {"jet": {**usual, **taps, **block}, "swa": {"window_size": window}}


TINY: dict[str, Tiny] = {}
TINY["jet_nemotron"] = Tiny(
    "Qwen2Config",
    {
        "num_hidden_layers": 3,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_theta": 500.0,
        "layer_types": ["jet", "attn", "swa"],
        "efficient_attention_config": _parts(),
    },
    {
        **choices.without(choices.HEADS, "rope_parameters", "head_dim", "num_hidden_layers"),
        "rope_theta": (300.0, 90000),
        "rope_scaling": (None,) * _RARE + ({"rope_type": "yarn", "factor": 2.0},),
        "layer_types": (
            *(["jet", "attn", "swa"], ["swa", "jet", "jet"], ["jet", "jet", "attn"]) * 3,
            *(["attn", "swa", "attn"], ["jet", "jet", "jet"], ["jet", "attn"]),
        ),
        "efficient_attention_config": (
            *(_parts(1, expand_v=1.5), _parts(64, num_heads=2, head_dim=32), _parts(conv_size=2)) * 3,
            *(_parts(norm_eps=1e-2), _parts(2, dconv_generator_reduction=4)) * 3,
            _parts(gate="own"),
        ),
    },
)
