"""GPT-2: positions that are learned, norms that take the mean away, one matrix of queries, keys and values,
MLPs without a gate, and every matrix stored by its columns."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.gpt_names import SMALL, as_usual
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.layer_config import PlacesConfig
from runtime.server.tensor_names import TensorNames

_NAMES = TensorNames(
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
    for name, value in _ONE_WAY.items():
        f.only(name, value)
    told = as_usual(f)
    f.only("num_key_value_heads", told.size("num_attention_heads"))
    return model(
        told,
        {"full": heads(told, rope=None, bias=True, output_bias=True)},
        everywhere(told, "full"),
        everywhere(told, "dense"),
        rms_eps=f.number("layer_norm_epsilon"),
        norms="numbered",
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=True,
        activation="gelu_new",
        tie_word_embeddings=True,
        places=PlacesConfig("transformer.wpe"),
        names=_NAMES,
    )


FAMILIES = (Family("gpt2", _gpt2, {**SMALL, **_ONE_WAY}),)
