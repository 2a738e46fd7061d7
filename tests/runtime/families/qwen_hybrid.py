from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import HF, Tiny


def counted(hf: HF) -> HF:
    """With the interval that SGLang counts by, which transformers takes and does not write."""
    text = hf.get("text_config", hf)
    layers = range(len(text["layer_types"]))
    for every in (*layers, 4):
        kinds = ["linear_attention" if (i + 1) % (every + 1) else "full_attention" for i in layers]
        if kinds == text["layer_types"]:
            break
    text["full_attention_interval"] = every + 1
    return hf


def _with_rope_apart(hf: HF) -> HF:
    """As checkpoints of Qwen3-Next have it."""
    rope = dict(hf.pop("rope_parameters"))
    apart = {name: rope.pop(name) for name in ("rope_theta", "partial_rotary_factor") if name in rope}
    return {**counted(hf), **apart, "rope_scaling": rope if rope["rope_type"] != "default" else None}


DELTA = {
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
DELTA_CHOICES: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (3,),
    "head_dim": (8, 16, 32),
    "attention_bias": (*(False,) * 9, True),
    "linear_num_key_heads": (1, 2, 4),
    "linear_num_value_heads": (4, 8),
    "linear_key_head_dim": (4, 8, 16),
    "linear_value_head_dim": (8, 16),
    "linear_conv_kernel_dim": (2, 3, 4),
    "layer_types": (None, *choices.BY_LAYER),
    "full_attention_interval": (None, 1, 2, 3),
    "partial_rotary_factor": (None, 0.25, 0.5, 1.0),
}
# Of which SGLang counts layers by the interval, whatever a list says.
_COUNTED = {**DELTA_CHOICES, "layer_types": (*(None,) * 9, *choices.BY_LAYER[:1])}
TINY: dict[str, Tiny] = {}
TINY["qwen3_next"] = Tiny(
    "Qwen3NextConfig",
    {
        **DELTA,
        **sizes.QWEN_MOE,
        "shared_expert_intermediate_size": 48,
        "full_attention_interval": 2,
    },
    {
        **choices.HEADS,
        **choices.EXPERTS,
        **_COUNTED,
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "norm_topk_prob": (False, True),
        "shared_expert_intermediate_size": (16, 48),
        **choices.ALL_SPARSE,
        **choices.NO_TIE,
    },
    as_published=_with_rope_apart,
)
TINY["qwen3_5_text"] = Tiny(
    "Qwen3_5TextConfig",
    {**DELTA, "head_dim": 32, "full_attention_interval": 2},
    {**choices.HEADS, **_COUNTED},
    as_published=counted,
)
TINY["qwen3_5_moe_text"] = Tiny(
    "Qwen3_5MoeTextConfig",
    {
        **DELTA,
        **sizes.QWEN_MOE,
        "shared_expert_intermediate_size": 48,
        "full_attention_interval": 2,
    },
    {
        **choices.without(choices.HEADS, "intermediate_size"),
        **choices.EXPERTS,
        **_COUNTED,
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "shared_expert_intermediate_size": (16, 48),
    },
    as_published=counted,
)
TINY["qwen3_5"] = Tiny(
    "Qwen3_5Config",
    {**TINY["qwen3_5_text"].sizes},
    {**choices.HEADS, **_COUNTED},
    tower={**sizes.TOWER, "num_position_embeddings": 64},
    as_published=counted,
)
_MINICPM_V = {
    **{"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"image_size": 28, "patch_size": 14},
}
for _version in ("4_6", "4_7"):
    TINY[f"minicpmv{_version}"] = Tiny(
        f"MiniCPMV{_version}Config",
        {**TINY["qwen3_5_text"].sizes, "model_type": "qwen3_5_text"},
        {**choices.HEADS, **_COUNTED},
        tower=_MINICPM_V,
        as_published=counted,
    )
TINY["qwen3_5_moe"] = Tiny(
    "Qwen3_5MoeConfig",
    {**TINY["qwen3_5_moe_text"].sizes},
    {**choices.without(choices.HEADS, "intermediate_size"), **choices.EXPERTS, **_COUNTED},
    tower={**sizes.TOWER, "num_position_embeddings": 64},
    as_published=counted,
)
