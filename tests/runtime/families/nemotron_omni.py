from __future__ import annotations

from typing import Any

from tests.runtime.families.nemotron_h import TINY as NEMOTRON_H
from tests.runtime.families.nemotron_h import with_groups
from tests.runtime.families.tiny import Tiny


def _nemotron_h_omni(hf: dict[str, Any]) -> dict[str, Any]:
    """Its tower by a name, under those of the sections that SGLang reads."""
    vision, sound = hf["vision_config"], dict(hf["audio_config"])
    for name in ("attention_bias", "scale_input", "max_position_embeddings"):
        del sound[name]
    tower = {"args": {"model": "vit_small_patch16_224", "register_multiple": 1 + vision["num_registers"]}}
    tower |= {name: vision[name] for name in ("patch_size", "video_temporal_patch_size")}
    return {
        "model_type": "nemotron_h_omni",
        "architectures": ["NemotronH_Omni_Reasoning_V3"],
        **{name: hf[name] for name in ("downsample_ratio", "projector_hidden_size")},
        "vit_hidden_size": hf["vision_hidden_size"],
        "llm_config": with_groups(hf["text_config"]),
        "vision_config": tower,
        "sound_config": {**sound, "sampling_rate": 16000},
    }


# The smallest that SGLang knows by its name.
_RADIO = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "num_cls_tokens": 1}
_EAR = {
    **{"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24},
    **{"subsampling_conv_channels": 4, "num_mel_bins": 16, "attention_bias": False, "scale_input": False},
    **{"projection_hidden_size": 12, "projection_bias": False},
}
TINY: dict[str, Tiny] = {}
TINY["nemotron_h_omni"] = Tiny(
    "NemotronH_Omni_Reasoning_V3_Config",
    {"model_type": "nemotron_h", **NEMOTRON_H["nemotron_h"].sizes},
    NEMOTRON_H["nemotron_h"].space,
    tower={**_RADIO, "patch_size": 32, "num_registers": 5, "video_temporal_patch_size": 2},
    beside={"vision_hidden_size": 384, "projector_hidden_size": 24, "audio_config": _EAR},
    as_published=_nemotron_h_omni,
)
