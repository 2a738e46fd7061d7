"""Phi 3 and 4: a Llama with queries, keys and values in one matrix, gates and ups in another."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.decoders.rope import read_rope


def _phi3(f: Fields) -> ModelConfig:
    kind = "sliding" if f.has("sliding_window") else "full"
    width = f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    rope = read_rope(f, width, share=1.0)
    if rope.parameters["rope_type"] != "default":
        f.cannot(
            f"rope_type is {rope.parameters['rope_type']!r}: models of this family have longrope or none"
        )
    attention = heads(f, window=f.size_or_none("sliding_window"), rope=rope)
    return model(f, {kind: attention}, everywhere(f, kind), everywhere(f, "dense"))


FAMILIES = (
    Family(
        "phi3",
        _phi3,
        {"intermediate_size": 8192, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        frozenset(("original_max_position_embeddings",)),  # of longrope
    ),
)
