"""EXAONE 3 and 3.5, Llamas under other names; EXAONE 4, dense and of experts: where some layers have a
window, only these turn queries and keys."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import (
    SLIDES,
    as_counted,
    dense_first,
    everywhere,
    heads,
    model,
    routed_by_sigmoid,
)
from runtime.server.decoders.rope import as_stretched
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    layers="transformer.h",
    embedding="transformer.wte",
    norm="transformer.ln_f",
    attention="attn.attention",
    attention_out="out_proj",
    gate="c_fc_0",
    up="c_fc_1",
    down="c_proj",
    served=ServedNames(
        (
            (r"\.attn\.attention\.", ".self_attn."),
            (r"\.c_fc_0$", ".gate_proj"),
            (r"\.c_fc_1$", ".up_proj"),
        ),
        plain=("lm_head",),
    ),
)


def _exaone(f: Fields) -> ModelConfig:
    """Told both counts of layers, its class takes the usual one."""
    layers = f.size(f.spelled("num_hidden_layers", "num_layers"))
    f.only("activation_function", "silu")
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    f.only("rope_is_neox_style", True)
    attention = heads(f)
    as_stretched(f, attention.rope)
    return model(
        f,
        {"full": attention},
        ["full"] * layers,
        ["dense"] * layers,
        rms_eps=f.number("layer_norm_epsilon"),
        intermediate_size=f.count("intermediate_size") or 4 * f.size("hidden_size"),
        activation="silu",
        norms="numbered",
        names=_NAMES,
    )


def _exaone4(f: Fields) -> ModelConfig:
    """SGLang counts by the letters of a pattern, and by no number; its heads are as wide as rows let them."""
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    kinds, pattern = _kinds(f), f.get("sliding_window_pattern")
    if f.has("sliding_window") and isinstance(pattern, str) and pattern:
        as_counted(f, "layer_types", SLIDES, _by_pattern(f, len(kinds)), f"sliding_window_pattern {pattern}")
    elif f.has("sliding_window"):
        f.cannot(f"sliding_window_pattern is {repr(pattern)[:60]}: SGLang counts the letters of one, as LLLG")
    return model(f, _attention(f, kinds), kinds, everywhere(f, "dense"), norms="after")


def _exaone_moe(f: Fields) -> ModelConfig:
    """SGLang asks a list that transformers has not; and layer_types alone which of them slide."""
    f.only("attention_bias", False)
    f.only("bias", False)
    f.get("sliding_window_pattern")
    kinds, mlps, listed = _kinds(f), dense_first(f), f.get("is_moe_layer")
    if not isinstance(listed, list) or listed[: len(mlps)] != [kind == "moe" for kind in mlps]:
        f.cannot("is_moe_layer is not what first_k_dense_replace says of each layer: SGLang goes by it")
    moe = routed_by_sigmoid(f)
    return model(f, _attention(f, kinds), kinds, mlps, moe=moe, whole_embedding=True)


def _kinds(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, SLIDES)
    if told is not None or not f.has("sliding_window"):
        return told or everywhere(f, "full")
    return _by_pattern(f, layers)


def _by_pattern(f: Fields, layers: int) -> list[str]:
    pattern = f.get("sliding_window_pattern")
    every = len(pattern) if pattern and isinstance(pattern, str) else f.size("sliding_window_pattern")
    return ["full" if (i + 1) % every == 0 else "sliding" for i in range(layers)]


def _attention(f: Fields, kinds: list[str]) -> dict[str, AttentionConfig]:
    window = f.size_or_none("sliding_window")
    if "sliding" in kinds and window is None:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    turned = heads(f, qk_norm="head")
    if window is None:
        return {"full": turned}
    both = {"full": replace(turned, rope=None), "sliding": replace(turned, window=window)}
    return {kind: both[kind] for kind in kinds}


_COMMON = {
    "intermediate_size": 16384,
    "num_key_value_heads": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
}

FAMILIES = (
    Family(
        "exaone",
        _exaone,
        {
            "num_layers": 32,
            "max_position_embeddings": 2048,
            "layer_norm_epsilon": 1e-5,
            "activation_function": "silu",
            "tie_word_embeddings": True,
        },
    ),
    Family("exaone4", _exaone4, _COMMON),
    Family(
        "exaone_moe",
        _exaone_moe,
        {
            **_COMMON,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 1024,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
        },
    ),
)
