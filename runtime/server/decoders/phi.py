"""Phi 3 and 4: a Llama with queries, keys and values in one matrix, gates and ups in another."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.longrope import is_long, read_long_of_phi
from runtime.server.decoders.parts import everywhere, heads, model


def _phi3(f: Fields) -> ModelConfig:
    kind, window = "sliding" if f.has("sliding_window") else "full", f.size_or_none("sliding_window")
    if is_long(f):
        width = f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
        attention = heads(f, window=window, rope=read_long_of_phi(f, width))
        return model(f, {kind: attention}, everywhere(f, kind), everywhere(f, "dense"))
    attention = heads(f, window=window, share=1.0)
    assert attention.rope is not None
    stretched = attention.rope.parameters["rope_type"]
    if stretched != "default":
        f.cannot(f"rope_type is {stretched!r}: models of this family have longrope or none")
    return model(f, {kind: attention}, everywhere(f, kind), everywhere(f, "dense"))


FAMILIES = (
    Family(
        "phi3",
        _phi3,
        {
            "intermediate_size": 8192,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
        },
    ),
)
