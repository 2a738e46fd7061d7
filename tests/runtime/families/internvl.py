from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny


def _internvl_chat(hf: dict[str, Any]) -> dict[str, Any]:
    """transformers rewrites these files, and has the same layers under other names."""
    vision, text = hf["vision_config"], hf["text_config"]
    vision = {**vision, "model_type": "intern_vit_6b", "qk_normalization": vision["use_qk_norm"]}
    vision |= {"qkv_bias": vision.pop("attention_bias")}
    return {
        "model_type": "internvl_chat",
        "architectures": ["InternVLChatModel"],
        "downsample_ratio": hf["downsample_ratio"],
        "llm_config": {**text, "architectures": [_LLMS[text["model_type"]]]},
        "vision_config": vision,
    }


_LLMS = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
_LLMS |= {"gpt_oss": "GptOssForCausalLM"}
TINY: dict[str, Tiny] = {}
TINY["internvl_chat"] = Tiny(
    "InternVLConfig",
    {"model_type": "qwen2"},
    {**choices.HEADS, **choices.OPTIONAL_WINDOW, "max_window_layers": (0, 1, 9)},
    tower={**sizes.PIXTRAL, "image_size": [56, 56], "attention_bias": True},
    as_published=_internvl_chat,
)
