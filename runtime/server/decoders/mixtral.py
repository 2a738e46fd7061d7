"""Mixtral: every layer of experts, all behind one window where there is one."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed


def _mixtral(f: Fields) -> ModelConfig:
    kind = "sliding" if f.has("sliding_window") else "full"
    attention = heads(f, window=f.size_or_none("sliding_window"), theta=1e6)
    moe = routed(f, "intermediate_size")
    return model(f, {kind: attention}, everywhere(f, kind), everywhere(f, "moe"), moe=moe)


FAMILIES = (
    Family(
        "mixtral",
        _mixtral,
        {
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "num_experts_per_tok": 2,
            "num_local_experts": 8,
        },
    ),
)
