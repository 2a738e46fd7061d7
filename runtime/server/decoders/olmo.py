"""OLMo 1, whose norms have no weights; OLMo 2 and 3, normed behind each part of a layer, and OLMoE: of these
queries and keys are normed over all heads."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, everywhere, heads, model, routed
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import AttentionConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_THETA = 500000.0  # where a file is silent
# srt/models/olmo.py gives its attention no method
_NAMES = TensorNames(served=ServedNames(plain=("q_proj", "k_proj", "v_proj", "o_proj")))


def _olmo(f: Fields) -> ModelConfig:
    count = f.size("num_attention_heads")
    f.only("num_key_value_heads", count)  # srt/models/olmo.py has no others
    f.only("head_dim", f.size("hidden_size") // count)
    bias = f.flag("attention_bias")
    attention = heads(f, bias=bias, output_bias=bias, clip=f.positive_or_none("clip_qkv"))
    assert attention.rope is not None
    stretched = attention.rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {stretched!r}: SGLang stretches no rope of this family")
    kinds = everywhere(f, "full"), everywhere(f, "dense")
    return model(f, {"full": attention}, *kinds, rms_eps=1e-5, mean_norms=True, bare_norms=True, names=_NAMES)


def _olmo2(f: Fields) -> ModelConfig:
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "dense"), norms="after")


def _olmo3(f: Fields) -> ModelConfig:
    """srt/configs/olmo3.py, models/olmo2.py: layers behind a window turn by a rope that is not stretched."""
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or ["full" if layer % 4 == 3 else "sliding" for layer in range(layers)]
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    if f.has("rope_parameters"):
        f.cannot("rope_parameters: of this family SGLang reads rope_theta and rope_scaling")
    if not f.has("rope_theta"):
        f.cannot("rope_theta is missing: SGLang takes 10000, and transformers 500000")
    attention = {kind: _turned(f, kind) for kind in dict.fromkeys(kinds)}
    return model(f, attention, kinds, everywhere(f, "dense"), norms="after")


def _turned(f: Fields, kind: str) -> AttentionConfig:
    named, width = f"{kind}_attention", f.size("hidden_size") // f.size("num_attention_heads")
    rope = read_rope(f, width, named, theta=_THETA)
    if kind == "sliding" and named not in f.section("rope_parameters"):
        rope = replace(rope, parameters={"rope_type": "default", "rope_theta": rope.theta})
    window = f.size("sliding_window") if kind == "sliding" else None
    return replace(_attention(f), rope=rope, window=window)


def _olmoe(f: Fields) -> ModelConfig:
    """Norms of heads are as wide as rows in SGLang's class, by one eps; its head is no embedding."""
    f.only("clip_qkv")
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    moe = routed(f, "intermediate_size", renormalize=f.flag("norm_topk_prob"))
    f.only("attention_bias", False)
    f.only("tie_word_embeddings", False)
    f.only("num_key_value_heads", f.size("num_attention_heads"))
    f.only("rms_norm_eps", 1e-5)
    attention = replace(_attention(f), qk_norm="all")
    return model(f, {"full": attention}, everywhere(f, "full"), everywhere(f, "moe"), moe=moe)


def _attention(f: Fields) -> AttentionConfig:
    bias = f.flag("attention_bias")
    return heads(f, bias=bias, output_bias=bias, qk_norm="all, held whole")


FAMILIES = (
    Family("olmo", _olmo, {"intermediate_size": 11008, "max_position_embeddings": 2048}),
    Family(
        "olmo2",
        _olmo2,
        {"intermediate_size": 11008, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
    ),
    Family(
        "olmo3",
        _olmo3,
        {
            "intermediate_size": 11008,
            "max_position_embeddings": 2048,
            "rms_norm_eps": 1e-5,
            "sliding_window": 4096,
        },
    ),
    Family(
        "olmoe",
        _olmoe,
        {
            "intermediate_size": 2048,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 8,
            "num_experts": 64,
        },
    ),
)
