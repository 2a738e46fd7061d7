from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.runtime.families.qwen_hybrid import TINY as QWEN_HYBRID
from tests.runtime.families.tiny import Tiny

_EXPERTS = QWEN_HYBRID["qwen3_5_moe_text"]


def _as_published(told: dict[str, Any]) -> dict[str, Any]:
    """Whose files list each layer's kind."""
    every = told.get("full_attention_interval") or 4
    layers = range(told["num_hidden_layers"])
    listed = ["linear_attention" if (i + 1) % every else "full_attention" for i in layers]
    listed = told.get("layer_types") or listed
    return {**told, "layer_types": listed, "full_attention_interval": every, "tie_word_embeddings": False}


TINY: dict[str, Tiny] = {
    "interns2_mobius_text": replace(
        _EXPERTS,
        sizes={
            **_EXPERTS.sizes,
            **{"num_blocks": 2, "num_hidden_layers": 3, "norm_topk_prob": True},
        },
        space={
            **_EXPERTS.space,
            "num_blocks": (1, 2, 2, 3),
            "norm_topk_prob": (True, True, False),
        },
        as_published=_as_published,
    )
}
