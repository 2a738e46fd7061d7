from __future__ import annotations

from typing import Any

from tests.runtime.families.tiny import Tiny

_ALWAYS = (
    *("use_embed_norm", "use_sconv", "use_gate_bias", "use_global_scale", "shared_expert_sink"),
    *("norm_after_topk", "inference_moe_w13_interleaved"),
)
_WRITTEN = ("layer_types", "mlp_layer_types", "moe_intermediate_size", "conv_kernel_size")


def _inkling(hf: dict[str, Any]) -> dict[str, Any]:
    """As its checkpoints tell what transformers writes by other names, or always has."""
    told = hf["text_config"]
    text = {name: value for name, value in told.items() if name not in _WRITTEN}
    text |= {
        **dict.fromkeys(_ALWAYS, True),
        "model_type": "inkling_model",
        "intermediate_size": told["moe_intermediate_size"],
        "dense_intermediate_size": told["intermediate_size"],
        "dense_mlp_idx": told["mlp_layer_types"].count("dense"),
        "local_layer_ids": [i for i, kind in enumerate(told["layer_types"]) if kind == "hybrid_sliding"],
        "sconv_kernel_size": told["conv_kernel_size"],
    }
    return {
        "model_type": "inkling_mm_model",
        "architectures": ["InklingForConditionalGeneration"],
        "text_config": text,
        "vision_config": {},
        "audio_config": {},
    }


TINY: dict[str, Tiny] = {}
TINY["inkling_mm_model"] = Tiny(
    "InklingConfig",
    {
        "num_key_value_heads": 4,
        "head_dim": 16,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 4,
        "swa_head_dim": 8,
        "local_layer_ids": [0],
        "sliding_window_size": 6,
        "d_rel": 4,
        "rel_extent": 9,
        "log_scaling_n_floor": 4,
        "log_scaling_alpha": 0.5,
        "dense_mlp_idx": 1,
        "intermediate_size": 32,
        "dense_intermediate_size": 64,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "route_scale": 1.5,
        "logits_mup_width_multiplier": 2.0,
        "unpadded_vocab_size": 90,
    },
    {
        "num_hidden_layers": (2, 3),
        "num_attention_heads": (4, 8),
        "num_key_value_heads": (1, 2, 4),
        "swa_num_attention_heads": (4, 8),
        "swa_num_key_value_heads": (1, 4),
        "head_dim": (8, 16),
        "swa_head_dim": (8, 16),
        "local_layer_ids": ([], [0], [1], [0, 1]),
        "sliding_window_size": (1, 5, 64),
        "d_rel": (1, 4),
        "rel_extent": (1, 7, 64),
        "log_scaling_n_floor": (None, 4, 10),
        "log_scaling_alpha": (0.1, 1.0),
        "sconv_kernel_size": (2, 4),
        "dense_mlp_idx": (0, 1, 2),
        "intermediate_size": (16, 32),
        "dense_intermediate_size": (32, 64),
        "n_routed_experts": (4, 8),
        "num_experts_per_tok": (1, 2, 4),
        "n_shared_experts": (1, 2),
        "route_scale": (1.0, 2.5),
        "rms_norm_eps": (1e-6, 1e-2),
        "logits_mup_width_multiplier": (1.0, 3.0),
        "unpadded_vocab_size": (None, 70, 99),
        "hidden_act": (*("silu",) * 19, "gelu"),
    },
    tower={"patch_size": 4, "temporal_patch_size": 2, "num_hidden_layers": 4},
    beside={"audio_config": {"n_mel_bins": 2, "mel_vocab_size": 4}},
    as_published=_inkling,
)
