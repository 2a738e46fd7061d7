from __future__ import annotations

from tests.runtime.families import choices
from tests.runtime.families.tiny import Tiny

_ROPES = {
    "rope_theta": (None, 500.0),
    "rope_scaling": (*(None,) * 3, *(rope for rope in choices.ROPES if rope is not None)),
}
TINY: dict[str, Tiny] = {}
TINY["xverse"] = Tiny(
    "XverseConfig",
    {"rms_norm_eps": 1e-6, "head_dim": 16},
    {
        **choices.without(choices.HEADS, "rope_parameters"),
        **_ROPES,
        "head_dim": (8, 16, 32),
        "tie_word_embeddings": (*(False,) * 9, True),
    },
)
TINY["TeleFLM"] = Tiny(
    "TeleFLMConfig",
    {"rms_norm_eps": 1e-6, "use_mup": True, "mup_scale_factor": 4.0, "input_mult": 2.0, "output_mult": 3.0},
    {
        **choices.without(choices.HEADS, "head_dim", "rope_parameters"),
        **_ROPES,
        "use_mup": (False, True),
        "mup_scale_factor": (1.0, 16.0),
        "input_mult": (1.0, 5.0),
        "output_mult": (1.0, 8.0),
    },
)
TINY["qwen"] = Tiny(
    "QWenConfig",
    {"vocab_size": 128, "layer_norm_epsilon": 1e-6, "tie_word_embeddings": False},
    {
        "num_hidden_layers": (1, 2, 3),
        "num_attention_heads": (4, 8),
        "intermediate_size": (96, 192),
        "layer_norm_epsilon": (1e-6, 1e-2),
        "tie_word_embeddings": (*(False,) * 9, True),
        "no_bias": (*(True,) * 9, False),
        **_ROPES,
        "rope_theta": (*(None,) * 5, 10000.0, 500.0),
    },
    spelled_apart=("num_key_value_heads",),
    as_published=lambda hf: {**hf, "kv_channels": hf["hidden_size"] // hf["num_attention_heads"]},
)
