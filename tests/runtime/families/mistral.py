from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

_GROWN = tuple(
    {**rope, "rope_theta": 500.0, "original_max_position_embeddings": length, "llama_4_scaling_beta": beta}
    for rope in choices.ROPES
    if rope is not None and rope["rope_type"] in ("yarn", "llama3")
    for length, beta in ((4, 0.3), (32, 0.1))
)
TINY: dict[str, Tiny] = {}
TINY["mistral"] = Tiny(
    "MistralConfig",
    {"head_dim": 16, "sliding_window": 7},
    {**choices.HEADS, **choices.WINDOW},
)
TINY["ministral3"] = Tiny(
    "Ministral3Config",
    {"head_dim": 16, "rope_parameters": {**sizes.YARN, "llama_4_scaling_beta": 0.3}},
    {**choices.HEADS, **choices.WINDOW, "rope_parameters": _GROWN},
)


def _with_projector(hf: dict[str, Any]) -> dict[str, Any]:
    """As SGLang asks for it: transformers' class has none with biases."""
    return {**hf, "multimodal_projector_bias": False}


TINY["lighton_ocr"] = Tiny(
    "LightOnOcrConfig",
    {"model_type": "qwen3", "head_dim": 16},
    {**choices.HEADS, **choices.OPTIONAL_WINDOW, "head_dim": (8, 32), "attention_bias": (False, True)},
    tower={**sizes.PIXTRAL, "model_type": "pixtral"},
    as_published=_with_projector,
)
TINY["mistral3"] = Tiny(
    "Mistral3Config",
    {"model_type": "mistral", "head_dim": 16},
    {**choices.HEADS, **choices.WINDOW},
    tower={**sizes.PIXTRAL, "model_type": "pixtral"},
)


def _whole(hf: dict[str, Any]) -> dict[str, Any]:
    """As SGLang's class takes what it sees, whose rope has a kind in some releases of transformers."""
    tower = {name: one for name, one in hf["vision_config"].items() if name != "rope_parameters"}
    return {**hf, "vision_config": tower, "vision_feature_select_strategy": "full"}


TINY["llava"] = Tiny(
    "LlavaConfig",
    {"model_type": "mistral", "head_dim": 16},
    {**choices.HEADS, **choices.WINDOW},
    tower={**sizes.PIXTRAL, "model_type": "pixtral"},
    as_published=_whole,
)
