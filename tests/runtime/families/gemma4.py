from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.sizes import VOCAB
from tests.runtime.families.tiny import Tiny

_GEMMA4_ROPES = (
    {"rope_type": "proportional", "partial_rotary_factor": 0.25},
    {"rope_type": "proportional", "partial_rotary_factor": 0.7},
    {"rope_type": "proportional"},
    {"rope_type": "default"},
)
_GEMMA4: dict[str, tuple[Any, ...]] = {
    **choices.without(choices.HEADS, "hidden_act"), "num_hidden_layers": (4,), "head_dim": (8, 12, 16),
    "hidden_activation": ("gelu_pytorch_tanh",) * 19 + ("silu",),
    "global_head_dim": (8, 16, 20), "num_global_key_value_heads": (None, None, 1, 2, 4),
    "attention_k_eq_v": (True, False), "attention_bias": (False, False, True), "sliding_window": (1, 5, 64),
    "layer_types": (
        *(["sliding_attention", "full_attention"] * 2, ["full_attention", "sliding_attention"] * 2) * 2,
        *(["full_attention"] * 4, ["sliding_attention"] * 4),
    ),
    "final_logit_softcapping": (None, 5.0), "use_bidirectional_attention": (None, "vision"),
    "hidden_size_per_layer_input": (0, 4, 8, 8), "vocab_size_per_layer_input": (VOCAB, VOCAB + 9),
    "num_kv_shared_layers": (0, 1, 2), "use_double_wide_mlp": (False, True),
    "enable_moe_block": (True, False), "num_experts": (4, 8), "top_k_experts": (1, 2, 3),
    "moe_intermediate_size": (16, 32),
    "rope_parameters": (None, *choices.ropes_by_kind(*_GEMMA4_ROPES * 4, *choices.ROPES)),
}  # fmt: skip
_AUDIO = {
    **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "output_proj_dims": 24},
    "subsampling_conv_channels": [128, 4],
}
TINY: dict[str, Tiny] = {}
TINY["gemma4_text"] = Tiny(
    "Gemma4TextConfig",
    {
        "head_dim": 16,
        "global_head_dim": 32,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "sliding_window": 6,
        "num_hidden_layers": 4,
        "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
        "num_kv_shared_layers": 1,  # in one stage of two
        "use_double_wide_mlp": True,
        "final_logit_softcapping": 5.0,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCAB,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    },
    _GEMMA4,
)
TINY["gemma4"] = Tiny(
    "Gemma4Config",
    {
        **TINY["gemma4_text"].sizes,
        **{"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
        **{"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0},
    },
    choices.without(_GEMMA4, "use_bidirectional_attention"),
    tower={**sizes.PIXTRAL, "head_dim": 8, "num_key_value_heads": 2, "position_embedding_size": 64},
    beside={"audio_config": _AUDIO},
)


def _gemma4_unified(hf: dict[str, Any]) -> dict[str, Any]:
    """With what checkpoints tell and transformers' class leaves out."""
    vision, sound = hf["vision_config"], hf["audio_config"]
    vision = {**vision, "model_patch_size": vision["patch_size"] * vision["pooling_kernel_size"]}
    return {
        **{**hf, "architectures": ["Gemma4UnifiedForConditionalGeneration"]},
        "text_config": {**hf["text_config"], "hidden_size_per_layer_input": 0},
        **{"vision_config": vision, "audio_config": {**sound, "output_proj_dims": sound["audio_embed_dim"]}},
    }


_OF_LAYERS_OR_EXPERTS = (
    *("hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block", "num_experts"),
    *("top_k_experts", "moe_intermediate_size"),
)
TINY["gemma4_unified"] = Tiny(
    "Gemma4UnifiedConfig",
    {name: one for name, one in TINY["gemma4_text"].sizes.items() if name not in _OF_LAYERS_OR_EXPERTS},
    choices.without(_GEMMA4, *_OF_LAYERS_OR_EXPERTS),
    tower={"patch_size": 4, "mm_embed_dim": 16, "mm_posemb_size": 8, "output_proj_dims": 16},
    beside={"audio_config": {"audio_embed_dim": 24}},
    as_published=_gemma4_unified,
)
_DIFFUSION = {
    **choices.without(
        _GEMMA4, "attention_k_eq_v", "hidden_size_per_layer_input", "vocab_size_per_layer_input",
        "num_kv_shared_layers", "use_double_wide_mlp", "enable_moe_block", "tie_word_embeddings",
        "final_logit_softcapping",
    ),
    "attention_bias": (False,) * 9 + (True,), "final_logit_softcapping": (5.0, 30.0),
}  # fmt: skip
_DIFFUSION_SIZES = {
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 2,
    "sliding_window": 6,
    "layer_types": ["sliding_attention", "full_attention"],
    "final_logit_softcapping": 5.0,
    "num_experts": 8,
    "top_k_experts": 2,
    "moe_intermediate_size": 32,
    "tie_word_embeddings": True,
}
TINY["diffusion_gemma"] = Tiny(
    "DiffusionGemmaConfig",
    _DIFFUSION_SIZES,
    choices.without(_DIFFUSION, "use_bidirectional_attention"),
    tower={**sizes.PIXTRAL, "head_dim": 8, "num_key_value_heads": 2, "position_embedding_size": 64},
    renamed={"model.encoder.language_model.": "model.decoder."},
)
TINY["diffusion_gemma_text"] = Tiny(
    "DiffusionGemmaTextConfig", _DIFFUSION_SIZES, _DIFFUSION, inside="diffusion_gemma"
)
