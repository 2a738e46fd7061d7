from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_EAR = {
    "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32,
    "num_mel_bins": 20, "max_source_positions": 12,
}  # fmt: skip
_GLM = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "num_mel_bins": 20,
}  # fmt: skip
_OWN_HEAD: dict[str, tuple[Any, ...]] = {"tie_word_embeddings": (*(False,) * 9, True)}
_LLAMA = {**choices.HEADS, "attention_bias": (False, True), "mlp_bias": (*(False,) * 5, True)}
TINY = {
    "qwen2_audio": Tiny(
        "Qwen2AudioConfig",
        {"model_type": "qwen2"},
        {**choices.without(choices.HEADS, "head_dim"), **choices.OPTIONAL_WINDOW, **_OWN_HEAD},
        tower=_EAR,
        tower_section="audio_config",
    ),
    "glmasr": Tiny(
        "GlmAsrConfig",
        {"model_type": "llama"},
        _LLAMA,
        tower=_GLM,
        tower_section="audio_config",
    ),
    "voxtral": Tiny(
        "VoxtralConfig",
        {"model_type": "llama", "head_dim": 16},
        {**_LLAMA, **_OWN_HEAD},
        tower={**_GLM, "max_source_positions": 12},
        tower_section="audio_config",
    ),
}
