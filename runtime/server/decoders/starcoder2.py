"""StarCoder2: norms by a mean, a bias in every matrix, and MLPs that have no gate."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(up="c_fc", down="c_proj", served=ServedNames())


def _starcoder2(f: Fields) -> ModelConfig:
    f.only("hidden_act", "gelu_pytorch_tanh")
    f.only("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    f.size_or_none("sliding_window")  # srt/models/starcoder2.py has none: layers see all
    bias = f.flag("use_bias")
    attention = heads(f, bias=bias, output_bias=bias)
    assert attention.rope is not None
    stretched = attention.rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {stretched!r}: SGLang stretches no rope of this family")
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=f.number("norm_epsilon"),
        mean_norms=True,
        norm_biases=True,
        gated_mlps=False,
        mlp_biases=bias,
        activation="gelu_tanh",
        names=_NAMES,
    )


FAMILIES = (
    Family(
        "starcoder2",
        _starcoder2,
        {
            "intermediate_size": 12288,
            "num_key_value_heads": 2,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 4096,
            "norm_epsilon": 1e-5,
            "use_bias": True,
            "tie_word_embeddings": True,
        },
    ),
)
