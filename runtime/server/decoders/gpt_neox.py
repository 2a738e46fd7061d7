"""GPT-NeoX and Pythia by transformers' own layers: attention and an MLP without a gate beside each other, or
one behind the other, and norms that take the mean away; a part of each head turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.by_transformers import by_transformers
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads
from runtime.server.layer_config import AttentionConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    layers="gpt_neox.layers",
    embedding="gpt_neox.embed_in",
    norm="gpt_neox.final_layer_norm",
    attention="attention",
    packed_qkv="query_key_value",
    packs_groups=True,
    attention_out="dense",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    head="embed_out",
    served=ServedNames(((r"^gpt_neox\.", "model."),)),
)
_ACTIVATIONS: Mapping[str, Literal["gelu", "gelu_new", "gelu_tanh", "relu"]] = {
    **{"gelu": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new"},
    **{"gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"},
}
_SHARE = 0.25


def _gpt_neox(f: Fields) -> ModelConfig:
    f.only("hidden_act", *_ACTIVATIONS)
    return by_transformers(
        f,
        {"full": _attention(f)},
        names=_NAMES,
        rms_eps=f.number("layer_norm_eps"),
        norms="beside" if f.flag("use_parallel_residual") else "before",
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=True,
        activation=_ACTIVATIONS.get(str(f.get("hidden_act")), "gelu"),
    )


def _attention(f: Fields) -> AttentionConfig:
    """By names of its own a file tells what turns, and how far; by the usual ones its class reads neither."""
    count, width = f.size("num_attention_heads"), f.size("hidden_size")
    if width % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    f.only("num_key_value_heads", count)
    f.only("head_dim", width // count)
    for name in ("rope_theta", "partial_rotary_factor"):
        f.only(name)
    own = {
        "rope_theta": f.number("rotary_emb_base", 10000.0),
        "partial_rotary_factor": f.number("rotary_pct", _SHARE),
    }
    stretched = f.section("rope_scaling") or f.section("rope_parameters")
    told = f.beside({"rope_scaling": {**own, **stretched}, "partial_rotary_factor": None})
    bias = f.flag("attention_bias")
    return heads(told, share=_SHARE, bias=bias, output_bias=bias)


FAMILIES = (
    Family(
        "gpt_neox",
        _gpt_neox,
        {
            **{"intermediate_size": 24576, "hidden_act": "gelu", "max_position_embeddings": 2048},
            **{"layer_norm_eps": 1e-5, "use_parallel_residual": True, "attention_bias": True},
        },
    ),
)
