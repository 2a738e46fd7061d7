"""Command R and Command A: attention and MLP beside each other, behind one norm that takes the mean away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from runtime.server.config import ModelConfig, Multipliers
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import SLIDES, TAKEN_AS_SILU, everywhere, heads, layered
from runtime.server.layer_config import AttentionConfig


def _cohere(f: Fields) -> ModelConfig:
    f.only("use_qk_norm", False)
    return _model(f, {"full": _attention(f, 500000.0)}, everywhere(f, "full"))


def _cohere2(f: Fields) -> ModelConfig:
    """Layers behind a window turn their queries and keys, others do not."""
    layers, every = f.size("num_hidden_layers"), f.size("sliding_window_pattern", 4)
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or ["sliding" if (i + 1) % every else "full" for i in range(layers)]
    if not f.has("sliding_window") and "sliding" in kinds:
        f.cannot("sliding_window is None: layers are behind it")
    turned = _attention(f)
    attention = {
        "sliding": replace(turned, window=f.size_or_none("sliding_window")),
        "full": replace(turned, rope=None),
    }
    return _model(f, attention, kinds)


def _attention(f: Fields, theta: float = 10000.0) -> AttentionConfig:
    f.only("attention_bias", False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    turned = heads(f, theta=theta, is_interleaved=True)
    assert turned.rope is not None
    return replace(turned, rope=replace(turned.rope, max_position=_longest(f)))


def _longest(f: Fields) -> int:
    return f.size("model_max_length", f.size("max_position_embeddings"))


def _model(f: Fields, attention: Mapping[str, AttentionConfig], kinds: Iterable[str]) -> ModelConfig:
    f.only("tie_word_embeddings", True)  # SGLang has no other head
    f.only("hidden_act", *TAKEN_AS_SILU)
    return layered(
        f,
        attention,
        kinds,
        everywhere(f, "dense"),
        rms_eps=f.number("layer_norm_eps"),
        max_position=_longest(f),
        norms="parallel",
        mean_norms=True,
        multipliers=Multipliers(logits=f.number("logit_scale")),
    )


_COMMON = {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "logit_scale": 0.0625,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}

FAMILIES = (
    Family("cohere", _cohere, _COMMON),
    Family("cohere2", _cohere2, {**_COMMON, "sliding_window": 4096}),
)
