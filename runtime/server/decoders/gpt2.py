"""GPT-2: positions that are learned, norms that take the mean away, one matrix of queries, keys and values,
MLPs without a gate, and every matrix stored by its columns."""

from __future__ import annotations

from typing import Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.gpt_names import SMALL, as_usual
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.table_config import PlacesConfig
from runtime.server.tensor_names import TensorNames

NAMES = TensorNames(
    layers="transformer.h",
    embedding="transformer.wte",
    norm="transformer.ln_f",
    attention="attn",
    packed_qkv="c_attn",
    attention_out="c_proj",
    up="c_fc",
    down="c_proj",
    by_columns=True,
)
_ONE_WAY = {
    "activation_function": "gelu_new",
    "add_cross_attention": False,
    "reorder_and_upcast_attn": False,
    "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True,
    "tie_word_embeddings": True,
}


def _gpt2(f: Fields) -> ModelConfig:
    """srt/models/gpt2.py, which looks at half of those, and does the same whatever the others say."""
    f.always(_ONE_WAY)
    return read_gpt(f, NAMES, "gelu_new")


def read_gpt(
    f: Fields,
    names: TensorNames,
    activation: Literal["gelu", "gelu_new", "gelu_tanh"],
    kv_heads: int | None = None,
) -> ModelConfig:
    """Without `kv_heads`, as many as heads."""
    told = as_usual(f)
    kv_heads = kv_heads or told.size("num_attention_heads")
    f.only("num_key_value_heads", kv_heads)
    return model(
        told,
        {"full": heads(told, kv_count=kv_heads, rope=None, bias=True, output_bias=True)},
        everywhere(told, "full"),
        everywhere(told, "dense"),
        rms_eps=f.number("layer_norm_epsilon"),
        norms="numbered",
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=True,
        activation=activation,
        tie_word_embeddings=True,
        places=PlacesConfig("transformer.wpe"),
        names=names,
    )


FAMILIES = (Family("gpt2", _gpt2, {**SMALL, **_ONE_WAY}),)
