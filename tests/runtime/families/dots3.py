from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.tiny import HF, Tiny

_RARE = 40
_BEHIND, _WHOLE = "sliding_attention", "full_attention"


def _latents(before: str, **sizes: Any) -> dict[str, Any]:
    return {f"{before}{name}": value for name, value in sizes.items()}


def _as_published(hf: HF) -> HF:
    return {**hf, "model_type": "dots3_note", "architectures": ["Dots3NoteForCausalLM"]}


_LATENTS: dict[str, tuple[Any, ...]] = {
    "kv_lora_rank": (16, 32),
    "q_lora_rank": (16, 24),
    "qk_nope_head_dim": (8, 16),
    "qk_rope_head_dim": (4, 8),
    "v_head_dim": (8, 16, 24),
    "attention_gate_type": ("headwise", "elementwise", *(None,) * 2),
    "rope_theta": (500.0, 10000.0),
}
TINY: dict[str, Tiny] = {}
TINY["dots3_note_text"] = Tiny(
    "Dots3Config",
    {
        "num_hidden_layers": 3,
        "num_key_value_heads": 4,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        **_latents(
            "", q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16
        ),
        **_latents(
            "swa_", q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=24
        ),
        **_latents("swa_", num_attention_heads=8, num_key_value_heads=8, attention_gate_type="elementwise"),
        "layer_types": [_BEHIND, _WHOLE, _BEHIND],
        "sliding_window_size": 5,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "first_k_dense_replace": 1,
    },
    {
        **choices.without(
            {**choices.COMMON, **choices.SIGMOID},
            *("num_attention_heads", "rope_parameters", "num_hidden_layers", "tie_word_embeddings"),
            *("attention_bias", "hidden_act"),
        ),
        **_LATENTS,
        **{f"swa_{name}": of for name, of in _LATENTS.items()},
        "swa_rope_theta": (None, 70.0),
        "topk_group": (1,),
        "hidden_act": ("silu",) * _RARE + ("gelu",),
        "tie_word_embeddings": (False,) * _RARE + (True,),
        "attention_bias": (None,) * _RARE + (True,),
        "topk_method": (None,) * _RARE + ("greedy",),
        "scoring_func": (None,) * _RARE + ("softmax",),
        "rope_scaling": (None,) * _RARE + ({"type": "yarn", "factor": 4.0},),
        "moe_layer_freq": (1, 1, 2),
        "apply_mla_qkv_lora_rescale": (None, True, False),
        "sliding_window_size": (1, 5, 64),
        "layer_types": (
            *([_BEHIND, _WHOLE, _BEHIND], [_WHOLE, _BEHIND, _WHOLE], [_BEHIND, _BEHIND, _WHOLE]) * 9,
            [_WHOLE] * 3,
        ),
        "index_topk": (None, 4, 16),
        "index_n_heads": (16,),
        "index_head_dim": (16, 32),
        "max_position_embeddings": (128, 256),
    },
    as_published=_as_published,
)
