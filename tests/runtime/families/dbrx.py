from __future__ import annotations

from typing import Any

from tests.runtime.families import choices
from tests.runtime.families.sizes import COMMON
from tests.runtime.families.tiny import HF, Tiny

_ATTENTION = ("attn_pdrop", "clip_qkv", "kv_n_heads")
_EXPERTS = (
    *("ffn_act_fn", "ffn_hidden_size", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights"),
    *("moe_num_experts", "moe_top_k"),
)


def _as_published(hf: HF) -> HF:
    """By the names of its own, a rope's base among those of its attention."""
    attention, experts, rope = hf["attn_config"], hf["ffn_config"], hf["rope_parameters"]
    told = {
        name: value for name, value in hf.items() if name not in ("num_key_value_heads", "rope_parameters")
    }
    kept = {} if rope["rope_type"] == "default" else {"rope_parameters": rope}
    return {
        **told,
        **kept,
        "attn_config": {**{one: attention[one] for one in _ATTENTION}, "rope_theta": rope["rope_theta"]},
        "ffn_config": {one: experts[one] for one in _EXPERTS},
    }


def _attention(**told: Any) -> HF:
    return {"rope_theta": 10000.0, **told}  # which its class asks for, and does not turn by


def _experts(**told: Any) -> HF:
    return {"ffn_hidden_size": 32, "moe_num_experts": 8, "moe_top_k": 2, **told}


TINY: dict[str, Tiny] = {}
TINY["dbrx"] = Tiny(
    "DbrxConfig",
    {
        **{"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 128},
        "attn_config": _attention(kv_n_heads=2, clip_qkv=1.5),
        "ffn_config": _experts(),
    },
    {
        "d_model": (64, 96),
        "n_layers": (1, 2, 3),
        "n_heads": (4, 8),
        "max_seq_len": (128, 256),
        "attn_config": (
            *(_attention(kv_n_heads=count, clip_qkv=clip) for count in (1, 2, 4) for clip in (0.5, 2, 1e4)),
            _attention(kv_n_heads=2),  # which transformers does not compute
        ),
        "ffn_config": (
            *(
                _experts(moe_top_k=chosen, moe_num_experts=count)
                for chosen in (1, 2, 3)
                for count in (4, 8, 16)
            ),
            *(_experts(ffn_hidden_size=width) for width in (16, 48)),
            _experts(moe_jitter_eps=0, moe_loss_weight=0.05),
            _experts(moe_normalize_expert_weights=2.0),
            _experts(ffn_act_fn={"name": "gelu"}),
        ),
        "rope_parameters": (*choices.ROPES[:2] * 4, choices.ROPES[2]),
    },
    as_published=_as_published,
    spelled_apart=tuple(name for name in COMMON if name != "vocab_size"),
)
