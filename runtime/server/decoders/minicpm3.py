"""MiniCPM3: MiniCPM's scales, and attention by latents that are turned in halves."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.longrope import is_long, read_long_of_heads
from runtime.server.decoders.minicpm import NAMES, scaled_by_smaller
from runtime.server.decoders.parts import everywhere, latents, model
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import AttentionConfig, MLAConfig


def _minicpm3(f: Fields) -> ModelConfig:
    """srt/models/minicpm3.py."""
    f.only("hidden_act", "silu")
    f.only("attention_bias", False)
    f.only("mlp_bias", False)
    f.only("num_experts", 0)
    attention, mla = _latents(f)
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        activation="silu",
        mla=mla,
        drops_absorbed=True,
        multipliers=scaled_by_smaller(f),
        names=NAMES,
    )


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    width = f.size("hidden_size") // f.size("num_attention_heads")
    f.only("v_head_dim", width)  # which SGLang asks no file for
    if not f.has("v_head_dim"):
        f = f.beside({"v_head_dim": width})
    turned = f.size("qk_rope_head_dim")
    rope = read_long_of_heads(f, turned) if is_long(f) else read_rope(f, turned)
    attention, mla = latents(f, rope=rope)
    return replace(attention, rope=rope, scale=mla.qk_head_dim**-0.5), mla


FAMILIES = (
    Family(
        "minicpm3",
        _minicpm3,
        {
            "intermediate_size": 6400,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "kv_lora_rank": 256,
            "q_lora_rank": 768,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 32,
            "scale_emb": 12,
            "scale_depth": 1.4,
            "dim_model_base": 256,
        },
    ),
)
