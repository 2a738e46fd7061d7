from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_HALF = {**sizes.MROPE, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}
_GLM_4V = {
    **choices.WITH_SECTIONS,
    "rope_parameters": (
        *choices.SECTIONS,
        *({**rope, "partial_rotary_factor": 0.5} for rope in choices.HALF_SECTIONS),
    ),
}
TINY: dict[str, Tiny] = {}
TINY["glm4v"] = Tiny(
    "Glm4vConfig",
    {"rope_parameters": _HALF},
    _GLM_4V,
    tower=sizes.TOWER,
)
TINY["glm46v"] = Tiny(
    "Glm46VConfig",
    {"rope_parameters": _HALF},
    _GLM_4V,
    tower=sizes.TOWER,
)
TINY["glm4v_moe"] = Tiny(
    "Glm4vMoeConfig",
    {
        "rope_parameters": _HALF,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "n_group": 2,
        "topk_group": 1,
    },
    {
        **choices.WITH_SECTIONS,
        **choices.SIGMOID,
        "rope_parameters": choices.HALF_SECTIONS,
        "head_dim": (None, 16),
        "partial_rotary_factor": (None, 0.5),
    },
    tower=sizes.TOWER,
)


def _glm_ocr(hf: dict[str, Any]) -> dict[str, Any]:
    return {**hf, "text_config": {**hf["text_config"], "attention_bias": False}}


TINY["glm_ocr"] = Tiny(
    "GlmOcrConfig",
    {"rope_parameters": _HALF, "intermediate_size": 192},
    {**_GLM_4V, "head_dim": (None, 16), "num_attention_heads": (4,)},
    tower={**sizes.TOWER, "image_size": 28},
    as_published=_glm_ocr,
)
