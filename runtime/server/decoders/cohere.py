"""Command R and Command A, dense and of experts: attention and MLP beside each other, behind one norm that
takes the mean away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import (
    MLPS,
    SLIDES,
    TAKEN_AS_SILU,
    as_counted,
    everywhere,
    heads,
    layered,
    which,
)
from runtime.server.layer_config import AttentionConfig, MoEConfig, Multipliers

_SCORES = ("softmax", "sigmoid")


def _cohere(f: Fields) -> ModelConfig:
    f.only("use_qk_norm", False)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    return _model(f, {"full": _attention(f, 500000.0)}, everywhere(f, "full"))


def _cohere2(f: Fields) -> ModelConfig:
    """Layers behind a window turn their queries and keys, others do not."""
    layers, every = f.size("num_hidden_layers"), f.size("sliding_window_pattern", 4)
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or _every(every, layers)
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    return _model(f, _behind_window(f, kinds), kinds)


def _every(pattern: int, layers: int) -> list[str]:
    return ["sliding" if (i + 1) % pattern else "full" for i in range(layers)]


def _behind_window(f: Fields, kinds: Iterable[str]) -> dict[str, AttentionConfig]:
    if not f.has("sliding_window") and "sliding" in kinds:
        f.cannot("sliding_window is None: layers are behind it")
    turned = _attention(f)
    attention = {
        "sliding": replace(turned, window=f.size_or_none("sliding_window")),
        "full": replace(turned, rope=None),
    }
    return {**attention, "turned": turned} if "turned" in kinds else attention


def _cohere2_moe(f: Fields) -> ModelConfig:
    """The first few are dense, by a count that transformers rewrites and SGLang goes by."""
    layers, first = f.size("num_hidden_layers"), f.count("first_k_dense_replace")
    mlps = which(layers, lambda i: i >= first)
    as_counted(f, "mlp_layer_types", MLPS, mlps, f"first_k_dense_replace {first}")
    if first and not f.has("prefix_dense_intermediate_size"):
        f.cannot("prefix_dense_intermediate_size is missing: SGLang has no dense layers without it")
    f.only("rope_scaling")  # neither turns by it
    inner = f.size("intermediate_size")
    kinds = _kinds_beside_experts(f, layers, first)
    return _model(
        f,
        _behind_window(f, kinds),
        kinds,
        mlps,
        intermediate_size=f.size("prefix_dense_intermediate_size", inner),
        moe=_routed(f, inner),
        **_norms(f),
    )


def _norms(f: Fields) -> dict[str, Any]:
    """As transformers has them: SGLang takes the mean away in either case, of as many weights."""
    eps = f.get("rms_norm_eps")
    return {} if eps is None else {"rms_eps": f.number("rms_norm_eps"), "mean_norms": False}


def _kinds_beside_experts(f: Fields, layers: int, first: int) -> list[str]:
    """Dense layers that see all turn, where all of them do."""
    prefix, every = f.size("prefix_dense_sliding_window_pattern"), f.size("sliding_window_pattern")
    told = f.per_layer("layer_types", layers, SLIDES)
    kinds = told or (_every(prefix, first) + _every(every, layers - first))[:layers]
    turns = first if prefix == 1 else 0
    return ["turned" if i < turns and kind == "full" else kind for i, kind in enumerate(kinds)]


def _routed(f: Fields, inner: int) -> MoEConfig:
    f.only("expert_selection_fn", *_SCORES)
    f.only("shared_expert_combination_strategy", "average", "sum")
    by_sigmoid, renormalize = f.get("expert_selection_fn") == "sigmoid", f.flag("norm_topk_prob")
    if not by_sigmoid and not renormalize:
        f.cannot("norm_topk_prob is False of softmax: transformers' add up to one, SGLang's do not")
    shared = f.count("num_shared_experts")
    averages = shared > 0 and f.get("shared_expert_combination_strategy") == "average"
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=inner * shared,
        scoring="sigmoid" if by_sigmoid else "softmax",
        renormalize=renormalize,
        together=0.5 if averages else 1.0,
        keeps_rows=True,  # which attention reads, too
    )


def _attention(f: Fields, theta: float = 10000.0) -> AttentionConfig:
    f.only("attention_bias", False)
    turned = heads(f, theta=theta, is_interleaved=True)
    assert turned.rope is not None
    return replace(turned, rope=replace(turned.rope, max_position=_longest(f)))


def _longest(f: Fields) -> int:
    return f.size("model_max_length", f.size("max_position_embeddings"))


def _model(
    f: Fields,
    attention: Mapping[str, AttentionConfig],
    kinds: Iterable[str],
    mlps: Iterable[str] | None = None,
    **own: Any,
) -> ModelConfig:
    f.only("tie_word_embeddings", True)  # SGLang has no other head
    f.only("hidden_act", *TAKEN_AS_SILU)
    own.setdefault("rms_eps", f.number("layer_norm_eps"))
    own.setdefault("mean_norms", True)
    return layered(
        f,
        attention,
        kinds,
        everywhere(f, "dense") if mlps is None else mlps,
        max_position=_longest(f),
        norms="parallel",
        tie_word_embeddings=True,
        multipliers=Multipliers(logits=f.number("logit_scale")),
        **own,
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
    Family(
        "cohere2_moe",
        _cohere2_moe,
        {
            **_COMMON,
            "head_dim": 128,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
            "prefix_dense_sliding_window_pattern": 1,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "num_shared_experts": 0,
            "shared_expert_combination_strategy": "average",
            "expert_selection_fn": "softmax",
            "norm_topk_prob": True,
        },
    ),
)
