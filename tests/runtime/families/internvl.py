from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.qwen import TINY as QWEN
from tests.runtime.families.qwen_hybrid import TINY as QWEN_HYBRID
from tests.runtime.families.qwen_hybrid import counted
from tests.runtime.families.tiny import Tiny


def _internvl_chat(hf: dict[str, Any]) -> dict[str, Any]:
    """transformers rewrites these files, and has the same layers under other names."""
    vision, text = hf["vision_config"], hf["text_config"]
    vision = {**vision, "model_type": "intern_vit_6b", "qk_normalization": vision["use_qk_norm"]}
    vision |= {
        "qkv_bias": vision.pop("attention_bias"),
        **{one: vision[one][0] for one in ("image_size", "patch_size")},
    }
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


def _interns1(hf: dict[str, Any]) -> dict[str, Any]:
    """Whose class transformers leaves to its checkpoints."""
    text = {**hf["text_config"], "architectures": [_LLMS[hf["text_config"]["model_type"]]]}
    named = {"model_type": "interns1", "architectures": ["InternS1ForConditionalGeneration"]}
    return {**hf, **named, "text_config": text}


def _intern_s2_preview(hf: dict[str, Any]) -> dict[str, Any]:
    architectures = ["InternS2PreviewForConditionalGeneration"]
    return {**counted(hf), "model_type": "intern_s2_preview", "architectures": architectures}


TINY["interns1"] = Tiny(
    "InternVLConfig",
    {"model_type": "qwen3_moe", **QWEN["qwen3_moe"].sizes},
    QWEN["qwen3_moe"].space,
    tower={**sizes.PIXTRAL, "image_size": [56, 56]},
    as_published=_interns1,
)
TINY["intern_s2_preview"] = replace(QWEN_HYBRID["qwen3_5_moe"], as_published=_intern_s2_preview)
