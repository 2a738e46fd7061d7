from __future__ import annotations

from typing import Any

from tests.runtime.families import choices, sizes
from tests.runtime.families.tiny import Tiny


def _longcat_flash(hf: dict[str, Any]) -> dict[str, Any]:
    """With the base apart from what stretches it, where anything does."""
    rope = {**hf["rope_parameters"]}
    base = rope.pop("rope_theta")
    stretched = rope if rope["rope_type"] != "default" else None
    told = {"rope_theta": base, "rope_scaling": stretched, "rope_parameters": None}
    return {**hf, **told, "architectures": ["LongcatFlashForCausalLM"]}


TINY: dict[str, Tiny] = {}
TINY["longcat_flash"] = Tiny(
    "LongcatFlashConfig",
    {
        **{name: sizes.LATENT[name] for name in ("q_lora_rank", "kv_lora_rank", "v_head_dim")},
        **{name: sizes.LATENT[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim")},
        "num_key_value_heads": 4,
        "head_dim": sizes.LATENT["qk_rope_head_dim"],
        "num_layers": 2,
        "ffn_hidden_size": 96,
        "expert_ffn_hidden_size": 32,
        "n_routed_experts": 8,
        "zero_expert_num": 4,
        "moe_topk": 3,
        "routed_scaling_factor": 2.5,
    },
    {
        **{
            name: choices.LATENT[name]
            for name in ("kv_lora_rank", "q_lora_rank", "v_head_dim", "rms_norm_eps")
        },
        **{name: choices.LATENT[name] for name in ("qk_nope_head_dim", "qk_rope_head_dim")},
        "num_layers": (1, 2, 3),
        "num_attention_heads": (4,),
        "ffn_hidden_size": (48, 96),
        "hidden_act": ("silu",) * 19 + ("gelu",),
        "tie_word_embeddings": (False,) * 19 + (True,),
        "attention_bias": (False,) * 19 + (True,),
        "router_bias": (None, False) * 9 + (True,),
        "rope_parameters": (*choices.ROPES[:2] * 12, *choices.MSCALES),
        "n_routed_experts": (4, 8),
        "moe_topk": (2, 3, 4),
        "zero_expert_num": (0, 2, 8),
        "expert_ffn_hidden_size": (16, 32),
        "routed_scaling_factor": (1.0, 2.5, 6.0),
    },
    as_published=_longcat_flash,
    spelled_apart=("num_hidden_layers", "intermediate_size"),
    alike={"head_dim": "qk_rope_head_dim"},
)
