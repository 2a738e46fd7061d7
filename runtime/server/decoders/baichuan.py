"""Baichuan 2 7B: a Llama with one matrix of queries, keys and values, and in one vocabulary a head of rows
that are made one long."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.tensor_names import ServedNames, TensorNames

_NAMES = TensorNames(packed_qkv="W_pack", served=ServedNames())
_OF_THE_SECOND = 125696  # by which srt/models/baichuan.py knows it


def _baichuan(f: Fields) -> ModelConfig:
    """As rows of one width have it, whose tokens are turned: `runtime.server.unserved_dense` names others."""
    count, width = f.size("num_attention_heads"), f.size("hidden_size")
    f.only("hidden_act", "silu")
    f.only("tie_word_embeddings", False)
    if width % count:
        f.cannot(f"hidden_size is no multiple of num_attention_heads, which is {count}")
    f.only("head_dim", width // count)
    f.only("num_key_value_heads", count)
    attention = heads(f)
    assert attention.rope is not None
    stretched = attention.rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {repr(stretched)[:60]}: SGLang stretches no rope of this family")
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        everywhere(f, "dense"),
        activation="silu",
        unit_head=f.size("vocab_size") == _OF_THE_SECOND,
        names=_NAMES,
    )


FAMILIES = (
    Family(
        "baichuan",
        _baichuan,
        {"intermediate_size": 11008, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6},
    ),
)
