"""BERT and XLM-RoBERTa: encoders, whose tokens see both ways, with norms behind each part of a layer.

A row is a token's, that of its place, and that of the first type. They answer a prompt with its first row, or
with what that scores.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.table_config import AddedRowsConfig
from runtime.server.tensor_names import TensorNames

_ACTIVATIONS: dict[str, Literal["gelu", "gelu_tanh", "gelu_new"]] = {
    "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_new",
}  # fmt: skip
_NAMES = TensorNames(
    layers="encoder.layer",
    embedding="embeddings.word_embeddings",
    attention="attention",
    attention_out="output.dense",
    mlp="",
    up="intermediate.dense",
    down="output.dense",
)
_PLAIN = "torch.nn.modules.linear.Identity"


def _bert(f: Fields) -> ModelConfig:
    return _read(f, None)


def _roberta(f: Fields) -> ModelConfig:
    """The first place is behind that of what pads."""
    return _read(f, f.count("pad_token_id"))


def _read(f: Fields, padding: int | None) -> ModelConfig:
    """srt/models/bert.py, roberta.py. They ask for position_embedding_type: no config class has it."""
    f.always({"position_embedding_type": "absolute"})
    f.only("is_decoder", False)
    f.only("add_cross_attention", False)
    f.only("sbert_ce_default_activation_function", _PLAIN)
    f.only("hidden_act", *_ACTIVATIONS)
    hidden, count = f.size("hidden_size"), f.size("num_attention_heads")
    length = f.size("max_position_embeddings")
    if hidden % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    f.only("head_dim", hidden // count)
    f.only("num_key_value_heads", count)
    last = f.size("num_hidden_layers") - 1
    attention = heads(f, rope=None, bias=True, output_bias=True, both_ways=True)
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        rms_eps=f.number("layer_norm_eps"),
        mean_norms=True,
        norm_biases=True,
        norms="behind",
        gated_mlps=False,
        mlp_biases=True,
        activation=_ACTIVATIONS.get(str(f.get("hidden_act")), "gelu"),
        max_position=length,
        tie_word_embeddings=False,
        added=AddedRowsConfig("embeddings", length, f.size("type_vocab_size"), padding),
        names=replace(_NAMES, norm=f"{_NAMES.layers}.{last}.output.LayerNorm"),
    )


_OWN: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}

FAMILIES = (
    Family("bert", _bert, _OWN),
    Family("xlm-roberta", _roberta, {**_OWN, "pad_token_id": 1}),
)
