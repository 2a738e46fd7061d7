"""Persimmon: norms that take the mean away, of heads too, a part of each head turned, MLPs without a gate;
every matrix but the head has a bias."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.layer_config import AttentionConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    norm="model.final_layernorm",
    packed_qkv="query_key_value",
    packs_groups=True,
    attention_out="dense",
    q_norm="q_layernorm",
    k_norm="k_layernorm",
    up="dense_h_to_4h",
    down="dense_4h_to_h",
    served=ServedNames(((r"^.*$", ""),)),  # srt/models/persimmon.py tells no matrix how it is called
)
_SHARE = 0.5
_EPS = 1e-5  # of heads, whatever a file says


def _persimmon(f: Fields) -> ModelConfig:
    f.only("hidden_act", "relu2")
    f.only("tie_word_embeddings", False)
    eps = f.number("layer_norm_eps")
    if f.flag("qk_layernorm") and eps != _EPS:
        f.cannot(f"layer_norm_eps is {eps}: SGLang norms queries and keys by {_EPS}, whatever is told")
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=eps,
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=True,
        activation="silu",
        names=_NAMES,
    )


def _attention(f: Fields) -> AttentionConfig:
    """srt/models/persimmon.py has as many KV heads as heads."""
    count, width = f.size("num_attention_heads"), f.size("hidden_size")
    if width % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    f.only("num_key_value_heads", count)
    f.only("head_dim", width // count)
    share, norms = f.number("partial_rotary_factor", _SHARE), f.flag("qk_layernorm")
    found = heads(f, share=_SHARE, bias=True, output_bias=True, qk_norm="head by mean" if norms else "none")
    assert found.rope is not None
    told, turned = found.rope.parameters["rope_type"], int(found.head_dim * share)
    if told != "default":
        f.cannot(f"rope_type is {repr(told)[:60]}: SGLang stretches no rope of this family")
    if found.rope.dim != turned:
        f.cannot(f"rope_parameters turn {found.rope.dim} values, SGLang {turned}")
    return found


FAMILIES = (
    Family(
        "persimmon",
        _persimmon,
        {
            "intermediate_size": 16384,
            "hidden_act": "relu2",
            "max_position_embeddings": 16384,
            "layer_norm_eps": 1e-5,
            "qk_layernorm": True,
        },
    ),
)
