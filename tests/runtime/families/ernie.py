from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny

TINY: dict[str, Tiny] = {}
TINY["ernie4_5"] = Tiny(
    "Ernie4_5Config",
    {"head_dim": 32},
    {**choices.HEADS, "use_bias": (False,) * 5 + (True,)},
    as_published=lambda hf: {**hf, "architectures": ["Ernie4_5_ForCausalLM"]},
)
TINY["ernie4_5_moe"] = Tiny(
    "Ernie4_5_MoeConfig",
    {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32, "moe_num_shared_experts": 2},
    {
        **choices.HEADS,
        "moe_k": (1, 2, 3),
        "moe_num_experts": (4, 8),
        "moe_num_shared_experts": (0, 1, 2),
        "moe_intermediate_size": (16, 32),
        "moe_layer_start_index": (0, 1),
        "moe_layer_interval": (1, 2),
        "moe_layer_end_index": (-1, 0, 1, 9),
        "moe_norm_min": (1e-12,) * 5 + (0.9,),
        "use_bias": (False,) * 5 + (True,),
    },
)


def _flat_alone(hf: dict[str, Any]) -> dict[str, Any]:
    """As its checkpoints have it, which say which of a head is turned."""
    text, told = hf["text_config"], ("model_type", "tie_word_embeddings", "rope_parameters")
    return {
        **{name: value for name, value in text.items() if name not in told},
        **{name: value for name, value in hf.items() if name != "text_config"},
        "rope_scaling": text["rope_parameters"],
        "rope_theta": text["rope_parameters"]["rope_theta"],
        "rope_is_neox_style": True,
    }


TINY["paddleocr_vl"] = Tiny(
    "PaddleOCRVLConfig",
    {"head_dim": 16, "rope_parameters": sizes.MROPE},
    {
        **choices.WITH_SECTIONS,
        "head_dim": (None, 16),
        "use_bias": (False,) * 5 + (True,),
    },
    tower={**sizes.PIXTRAL, "image_size": 56},
    as_published=_flat_alone,
)


def _flat(hf: dict[str, Any]) -> dict[str, Any]:
    """The file that SGLang's class reads: transformers' own has a section, and its layers by name."""
    text, vision = hf["text_config"], hf["vision_config"]
    told = {name: value for name, value in text.items() if name not in ("model_type", "mlp_layer_types")}
    sparse = [i for i, kind in enumerate(text["mlp_layer_types"]) if kind == "sparse"]
    layers = (min(sparse), max(sparse)) if sparse else (text["num_hidden_layers"], text["num_hidden_layers"])
    rope = text["rope_parameters"]
    return {
        **told,
        "model_type": "ernie4_5_moe_vl",
        "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"],
        "tie_word_embeddings": hf["tie_word_embeddings"],
        "rope_theta": rope["rope_theta"],
        "freq_allocation": rope["mrope_section"][2],
        "moe_num_experts": [text["moe_num_experts"]] * 2,
        **{"moe_layer_start_index": [layers[0]] * 2, "moe_layer_end_index": [layers[1]] * 2},
        **{"moe_layer_interval": 1, "pixel_hidden_size": vision["hidden_size"]},
        **{"spatial_conv_size": vision["spatial_merge_size"]},
        **{"temporal_conv_size": vision["temporal_merge_size"]},
        "vision_config": {
            **{name: vision[name] for name in ("depth", "hidden_size", "num_heads", "patch_size")},
            **{"embed_dim": vision["hidden_size"], "in_chans": vision["in_channels"]},
            "mlp_ratio": vision["intermediate_size"] / vision["hidden_size"],
        },
    }


_PLACES = tuple(
    {"rope_type": "default", "rope_theta": theta, "mrope_section": sections}
    for theta in (500.0, 500000.0)
    for sections in ([3, 3, 2], [2, 2, 4])
)
TINY["ernie4_5_moe_vl"] = Tiny(
    "Ernie4_5_VLMoeConfig",
    {
        **{"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": [32, 16]},
        **{"moe_num_shared_experts": 2, "rope_parameters": _PLACES[0], "use_bias": False},
    },
    {
        **choices.without(choices.HEADS, "head_dim", "hidden_act"),
        "num_attention_heads": (4,),
        "rope_parameters": _PLACES,
        "moe_k": (1, 2, 3),
        "moe_num_experts": (4, 8),
        "moe_num_shared_experts": (0, 1, 2),
        "moe_intermediate_size": ([16, 32], [32, 16], [48, 8]),
        "mlp_layer_types": (
            None,
            ["sparse"] * 3,
            ["dense", "sparse", "sparse"],
            ["dense", "sparse", "dense"],
        ),
        "moe_norm_min": (1e-12,) * 5 + (0.9,),
        "use_bias": (False,) * 5 + (True,),
    },
    tower={"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 48},
    as_published=_flat,
)
