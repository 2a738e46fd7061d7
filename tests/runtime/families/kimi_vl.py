from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny, with_step


def _kimi_vl(hf: dict[str, Any]) -> dict[str, Any]:
    """What transformers has as a Kimi-K2.5; a text that tells all that its class leaves open."""
    text = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", **hf["text_config"]}
    vision = {**hf["vision_config"], "model_type": "moonvit"}
    for side in ("height", "width"):
        vision[f"init_pos_emb_{side}"] = vision.pop(f"pos_emb_{side}")
    return {
        "model_type": "kimi_vl",
        "architectures": ["KimiVLForConditionalGeneration"],
        "text_config": text,
        "vision_config": vision,
    }


def _kimi_k25(hf: dict[str, Any]) -> dict[str, Any]:
    """By the names of sizes that SGLang's config class has, and by that which its class asks for."""
    vision = dict(hf["vision_config"])
    for side in ("height", "width"):
        vision[f"init_pos_emb_{side}"] = vision.pop(f"pos_emb_{side}")
    text = with_step(hf["text_config"])
    vision |= {"vt_hidden_size": vision["hidden_size"], "text_hidden_size": text["hidden_size"]}
    return {**hf, "text_config": text, "vision_config": vision}


TINY: dict[str, Tiny] = {}
TINY["kimi_k25"] = Tiny(
    "Kimi_K25Config",
    {"model_type": "deepseek_v3", **sizes.LATENT, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1},
    {**choices.LATENT, "rope_parameters": choices.MSCALES, "rope_interleave": (True, False)},
    tower={**sizes.PIXTRAL, "pos_emb_height": 4, "pos_emb_width": 4},
    beside={"projection_hidden_size": 16},
    as_published=_kimi_k25,
)
TINY["kimi_vl"] = Tiny(
    "Kimi_K25Config",
    {"model_type": "deepseek_v3", **sizes.LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1},
    {**choices.LATENT, "rope_parameters": choices.MSCALES, "q_lora_rank": (None, 24)},
    tower={**sizes.PIXTRAL, "pos_emb_height": 4, "pos_emb_width": 4},
    beside={"projection_hidden_size": 16},
    as_published=_kimi_vl,
)
