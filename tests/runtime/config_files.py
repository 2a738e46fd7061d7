"""What the installed transformers would write of a family's config."""

from __future__ import annotations

import json
from typing import Any

from transformers import CONFIG_MAPPING

from tests.runtime.published_classes import CLASSES, NEEDED

# Served by SGLang under the class of another family, or told by its architecture alone.
_SAME_AS = {
    **dict.fromkeys(("kimi_k2", "mistral_large_3", "dots_vlm_text", "deepseek_vl2_text"), "deepseek_v3"),
    **{"mimo": "qwen2", "mixtral_quant": "mixtral", "bailing_hybrid_v3": "bailing_hybrid"},
    "embedding_gemma": "gemma3_text",
    "ernie4_5_of_transformers": "ernie4_5",
}


def config_class(family: str) -> Any:
    return CLASSES.get(family) or CONFIG_MAPPING[_SAME_AS.get(family, family)]


def config_file(family: str, **told: Any) -> dict[str, Any]:
    config = config_class(family)(**{**NEEDED.get(family, {}), **told}).to_dict()
    return {**json.loads(json.dumps(config)), "model_type": family}
