from __future__ import annotations

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import HF, Tiny

_QWEN_VL = {**choices.WITH_SECTIONS, **choices.OPTIONAL_WINDOW, "max_window_layers": (0, 1, 9)}


def _with_channels(hf: HF) -> HF:
    """By the name that SGLang asks for."""
    return {**hf, "vision_config": {**hf["vision_config"], "in_chans": 3}}


TINY: dict[str, Tiny] = {}
TINY["qwen2_vl"] = Tiny(
    "Qwen2VLConfig",
    {"rope_parameters": sizes.MROPE},
    _QWEN_VL,
    tower={"depth": 1, "embed_dim": 16, "num_heads": 2, "hidden_size": 64},
    as_published=_with_channels,
)
TINY["qwen2_5_vl"] = Tiny(
    "Qwen2_5_VLConfig",
    {"rope_parameters": sizes.MROPE, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    _QWEN_VL,
    tower=sizes.TOWER,
)
TINY["qwen3_vl"] = Tiny(
    "Qwen3VLConfig",
    {"rope_parameters": sizes.MROPE, "head_dim": 16},
    {**choices.WITH_SECTIONS, "head_dim": (16,), "attention_bias": (False, True)},
    tower={**sizes.TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
)
TINY["qwen3_vl_moe"] = Tiny(
    "Qwen3VLMoeConfig",
    {"rope_parameters": sizes.MROPE, **sizes.QWEN_MOE, "head_dim": 16},
    {
        **choices.WITH_SECTIONS,
        **choices.EXPERTS,
        "head_dim": (16,),
        "attention_bias": (False, True),
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        **choices.ALL_SPARSE,
    },
    tower={**sizes.TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
)
