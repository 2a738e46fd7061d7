from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny


def _qwen3_omni_moe(hf: dict[str, Any]) -> dict[str, Any]:
    """Inside of what speaks as well, which SGLang leaves out."""
    architectures = ["Qwen3OmniMoeForConditionalGeneration"]
    return {"model_type": "qwen3_omni_moe", "architectures": architectures, "thinker_config": hf}


_AUDIO = {
    **{"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 24},
    **{"downsample_hidden_size": 8, "num_mel_bins": 20, "output_dim": 64},
}
TINY: dict[str, Tiny] = {}
TINY["qwen3_omni_moe"] = Tiny(
    "Qwen3OmniMoeThinkerConfig",
    {"model_type": "qwen3_omni_moe_text", "rope_parameters": sizes.MROPE, **sizes.QWEN_MOE, "head_dim": 16},
    {
        **choices.without(choices.WITH_SECTIONS, "tie_word_embeddings"),
        **choices.EXPERTS,
        "head_dim": (16,),
        "attention_bias": (False, True),
        "sliding_window": (None, 4),
        "num_experts": (4, 8),
        "moe_intermediate_size": (16, 32),
        "norm_topk_prob": (True, False),
        **choices.ALL_SPARSE,
        "tie_word_embeddings": (False, True),
    },
    tower={**sizes.TOWER, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]},
    beside={"audio_config": _AUDIO},
    as_published=_qwen3_omni_moe,
)


def _qwen3_asr(hf: dict[str, Any]) -> dict[str, Any]:
    """As SGLang reads it: transformers' own has no such section."""
    audio = {**hf["audio_config"], "model_type": "qwen3_asr_audio_encoder"}
    thinker = {"text_config": hf["text_config"], "audio_config": audio}
    architectures = ["Qwen3ASRForConditionalGeneration"]
    return {"model_type": "qwen3_asr", "architectures": architectures, "thinker_config": thinker}


TINY["qwen3_asr"] = Tiny(
    "Qwen3ASRConfig",
    {"model_type": "qwen3", "head_dim": 32, "rope_parameters": sizes.MROPE},
    {
        **choices.WITH_SECTIONS,
        **choices.OPTIONAL_WINDOW,
        "head_dim": (16,),
        "attention_bias": (False, True),
    },
    tower=_AUDIO,
    tower_section="audio_config",
    as_published=_qwen3_asr,
    renamed={"model.language_model.": "model."},
)
