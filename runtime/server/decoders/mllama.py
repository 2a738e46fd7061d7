"""Mllama: a Llama some of whose layers attend to nothing but what a tower made of images."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import heads, model
from runtime.server.decoders.rope import as_stretched
from runtime.server.errors import ConfigError
from runtime.server.tensor_names import ServedNames, TensorNames

NAME = "mllama_text_model"
_SEEING = (3, 8, 13, 18, 23, 28, 33, 38)
_UNSAID = 8  # tokens that its embedding knows, and its head does not


def _mllama(f: Fields) -> ModelConfig:
    """srt/models/llama.py has biases of attention, which transformers has not, and neither ties its head."""
    for name in ("attention_bias", "bias", "mlp_bias", "qkv_bias", "tie_word_embeddings"):
        f.only(name, False)
    f.only("rope_is_neox_style", True)
    _one_width(f)
    seeing = f.layer_numbers("cross_attention_layers") if f.has("cross_attention_layers") else {*_SEEING}
    kinds = ["cross" if layer in seeing else "full" for layer in range(f.size("num_hidden_layers"))]
    if {*kinds} != {"cross", "full"}:
        f.cannot("cross_attention_layers names none of its layers, or all: graphs of such are not known here")
    reading = heads(f, theta=500000.0)
    as_stretched(f, reading.rope)
    attention = {"full": reading, "cross": heads(f, rope=None, qk_norm="head", crosses=True)}
    here = {kind: attention[kind] for kind in dict.fromkeys(kinds)}
    names = TensorNames(served=ServedNames())
    found = model(f, here, kinds, ["dense"] * len(kinds), tie_word_embeddings=False, names=names)
    return replace(found, vocab_size=found.vocab_size + _UNSAID, head_vocab=found.vocab_size)


def _one_width(f: Fields) -> None:
    """transformers makes heads of rows whatever is told, and turns as much of them as is told."""
    count, hidden = f.size("num_attention_heads"), f.size("hidden_size")
    if hidden % count:
        raise ConfigError(f"config.json: hidden_size {hidden} cannot be divided among {count} heads")
    told = f.get("head_dim")
    if told not in (None, hidden // count):
        f.cannot(f"head_dim is {repr(told)[:60]}: transformers' heads are {hidden // count} wide")


FAMILIES = (
    Family(
        NAME,
        _mllama,
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 40,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_act": "silu",
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
        },
    ),
)
