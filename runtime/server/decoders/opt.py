"""OPT: positions that are learned, behind two rows that nobody asks, norms that take the mean away, MLPs
without a gate, whose matrices stand among those of their layer; one of its models has norms behind each part
of a layer, and tables of its vocabulary that are narrower than rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.table_config import PlacesConfig, TablesConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_DECODER = "model.decoder"
_NAMES = TensorNames(
    layers=f"{_DECODER}.layers",
    embedding=f"{_DECODER}.embed_tokens",
    norm=f"{_DECODER}.final_layer_norm",
    attention_out="out_proj",
    mlp="",
    up="fc1",
    down="fc2",
    served=ServedNames(paths=(("decoder[.]", ""), ("out_proj$", "o_proj")), plain=("lm_head",)),
)
_PLACES = PlacesConfig(f"{_DECODER}.embed_positions", before=2)
_EPS = 1e-5  # of every norm, in either class


def _opt(f: Fields) -> ModelConfig:
    """srt/models/opt.py, which takes what activates otherwise for nothing at all."""
    hidden, count = f.size("hidden_size"), f.size("num_attention_heads")
    if hidden % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    f.only("head_dim", hidden // count)
    f.only("num_key_value_heads", count)
    f.only("activation_function", "relu", "gelu")
    f.only("_remove_final_layer_norm", False)
    bias, weighs = f.flag("enable_bias"), f.flag("layer_norm_elementwise_affine")
    return model(
        f,
        {"full": heads(f, rope=None, bias=bias, output_bias=bias)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=_EPS,
        mean_norms=True,
        norm_biases=weighs,
        bare_norms=not weighs,
        gated_mlps=False,
        mlp_biases=bias,
        intermediate_size=f.size("ffn_dim"),
        activation="gelu" if f.get("activation_function") == "gelu" else "relu",
        tables=_tables(f, hidden),
        places=_PLACES,
        **_norms(f),
    )


def _norms(f: Fields) -> dict[str, Any]:
    """Behind each part of a layer, the last is the last layer's."""
    if f.flag("do_layer_norm_before"):
        return {"norms": "final", "names": _NAMES}
    last = f"{_NAMES.layers}.{f.size('num_hidden_layers') - 1}.final_layer_norm"
    return {"norms": "behind", "names": replace(_NAMES, norm=last)}


def _tables(f: Fields, hidden: int) -> TablesConfig | None:
    width = f.size("word_embed_proj_dim", hidden)
    return (
        None if width == hidden else TablesConfig(width, f"{_DECODER}.project_in", f"{_DECODER}.project_out")
    )


FAMILIES = (
    Family(
        "opt",
        _opt,
        {
            "vocab_size": 50272,
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "ffn_dim": 3072,
            "max_position_embeddings": 2048,
            "num_attention_heads": 12,
            "activation_function": "relu",
            "do_layer_norm_before": True,
            "enable_bias": True,
            "layer_norm_elementwise_affine": True,
            "tie_word_embeddings": True,
        },
    ),
)
