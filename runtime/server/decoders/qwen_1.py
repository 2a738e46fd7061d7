"""Qwen 1: a Llama under other names, its queries, keys and values one matrix with biases."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    layers="transformer.h",
    embedding="transformer.wte",
    norm="transformer.ln_f",
    attention="attn",
    packed_qkv="c_attn",
    attention_out="c_proj",
    gate="w2",
    up="w1",
    down="c_proj",
    served=ServedNames(((r"\.w2$", ".gate_proj"), (r"\.w1$", ".up_proj")), plain=("lm_head",)),
)
_PADDED = 64  # rows of a table of tokens


def _qwen_1(f: Fields) -> ModelConfig:
    """srt/models/qwen.py."""
    layers, count = f.size("num_hidden_layers"), f.size("num_attention_heads")
    width = f.size("hidden_size") // count
    f.only("no_bias", True)
    f.only("tie_word_embeddings", False)
    f.only("kv_channels", width)
    f.only("head_dim", width)
    f.only("num_key_value_heads", count)
    f.only("rotary_pct", 1.0)
    f.only("visual")
    if f.size("vocab_size") % _PADDED:
        f.cannot(f"vocab_size is {f.get('vocab_size')}: SGLang's class reads tables of whole {_PADDED}s")
    attention = heads(f, width=width, bias=True)
    assert attention.rope is not None
    if f.number("rotary_emb_base") != attention.rope.theta:
        f.cannot(f"rotary_emb_base is {f.get('rotary_emb_base')}: SGLang turns by {attention.rope.theta}")
    return model(
        f,
        {"full": attention},
        ["full"] * layers,
        ["dense"] * layers,
        rms_eps=f.number("layer_norm_epsilon"),
        intermediate_size=f.size("intermediate_size") // 2,
        activation="silu",
        norms="numbered",
        names=_NAMES,
    )


FAMILIES = (
    Family(
        "qwen",
        _qwen_1,
        {
            "intermediate_size": 22016,
            "max_position_embeddings": 8192,
            "layer_norm_epsilon": 1e-6,
            "rotary_emb_base": 10000,
            "kv_channels": 128,
        },
    ),
)
