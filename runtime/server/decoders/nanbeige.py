"""Nanbeige 4.2: a Llama whose layers run several times, each time with keys and values of their own."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model

# What later models of its family have, and srt/models/nanbeige.py does not know.
_UNKNOWN = (
    *("qk_layernorm", "ngram_insert_all_layers", "enable_double_loop_split", "loop_share_kv"),
    *("enable_hyper_connection", "enable_mhc", "enable_h_res_identity", "enable_depth_attention"),
)
_THETA = 50000.0


def _nanbeige(f: Fields) -> ModelConfig:
    f.only("hidden_act", "silu")
    f.only("attention_bias", False)
    f.only("mlp_bias", False)
    for name in _UNKNOWN:
        f.only(name, False)
    for name in ("insert_ngram_layer_idx", "loop_middle_layers", "loop_loss_weights"):
        f.only(name, [])
    for name in ("emb_neighbor_num", "loop_num"):
        f.only(name)
    _plain_rope(f)
    rounds = f.size("num_loops")
    layers = rounds * f.size("num_hidden_layers")
    return model(
        f,
        {"full": heads(f, theta=_THETA)},
        ["full"] * layers,
        ["dense"] * layers,
        activation="silu",
        rounds=rounds,
        norms_rounds=not f.flag("skip_loop_final_norm"),
    )


def _plain_rope(f: Fields) -> None:
    """SGLang turns by `rope_theta`, whatever a rope's parameters tell."""
    f.only("rope_scaling")
    if not f.has("rope_theta"):
        f.cannot("rope_theta is null: SGLang turns by no other")
    base = f.number("rope_theta", _THETA)
    told = f.section("rope_parameters")
    if told.get("rope_theta", base) != base or told.get("rope_type", "default") != "default":
        f.cannot(f"rope_parameters is {repr(dict(told))[:60]}: SGLang turns by rope_theta alone")


FAMILIES = (
    Family(
        "nanbeige",
        _nanbeige,
        {
            "vocab_size": 166144,
            "hidden_size": 3072,
            "intermediate_size": 10752,
            "num_hidden_layers": 22,
            "num_attention_heads": 48,
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_theta": _THETA,
            "num_loops": 2,
        },
    ),
)
