"""Phi 1, 1.5 and 2: attention and an MLP without a gate beside each other, behind a norm that takes the mean
away; a part of each head turns, and every matrix has a bias, the head too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(
    norm="model.final_layernorm",
    attention_out="dense",
    up="fc1",
    down="fc2",
    served=ServedNames(((r"^.*$", ""),)),  # srt/models/phi.py tells no matrix how it is called
)
_ACTIVATIONS: Mapping[str, Literal["gelu_new", "gelu_tanh"]] = {
    "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_tanh",
}  # fmt: skip
_SHARE = 0.5


def _phi(f: Fields) -> ModelConfig:
    _check(f)
    share = f.number("partial_rotary_factor", _SHARE)
    attention = heads(f, share=_SHARE, bias=True, output_bias=True)
    assert attention.rope is not None
    told = attention.rope.parameters["rope_type"]
    if told != "default":
        f.cannot(f"rope_type is {told!r}: SGLang stretches no rope of this family")
    turned = int(attention.head_dim * share)
    if attention.rope.dim != turned:
        f.cannot(f"rope_parameters turn {attention.rope.dim} values, SGLang {turned}")
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=f.number("layer_norm_eps"),
        norms="parallel",
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=True,
        activation=_ACTIVATIONS.get(str(f.get("hidden_act")), "gelu_new"),
        head_bias=True,
        names=_NAMES,
    )


def _check(f: Fields) -> None:
    """srt/models/phi.py has as many KV heads as heads, and MLPs of another field than transformers."""
    for name in ("qk_layernorm", "tie_word_embeddings"):
        f.only(name, False)
    f.only("hidden_act", *_ACTIVATIONS)
    count, width = f.size("num_attention_heads"), f.size("hidden_size")
    f.only("num_key_value_heads", count)
    f.only("head_dim", width // count)
    inner = f.size("n_inner", 4 * width)
    if f.size("intermediate_size") != inner:
        f.cannot(f"intermediate_size is {f.get('intermediate_size')}: SGLang makes MLPs {inner} wide")


FAMILIES = (
    Family(
        "phi",
        _phi,
        {
            "intermediate_size": 8192,
            "hidden_act": "gelu_new",
            "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-5,
        },
    ),
)
