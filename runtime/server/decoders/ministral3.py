"""Ministral 3: a Mistral whose queries grow with their position, turned by YaRN unless told otherwise."""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, heads, model
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Growth

_YARN = {
    "type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}


_NOT_READ = ("max_position_embeddings", "llama_4_scaling_beta")  # by a rope


def _ministral3(f: Fields) -> ModelConfig:
    kind = "sliding" if f.has("sliding_window") else "full"
    return model(f, {kind: _attention(f)}, everywhere(f, kind), everywhere(f, "dense"))


def _attention(f: Fields) -> AttentionConfig:
    told = f.section("rope_scaling") or f.section("rope_parameters")
    numbers = (
        checked_number(f"rope_parameters: {name}", told.get(name))
        for name in ("llama_4_scaling_beta", "original_max_position_embeddings")
    )
    strength, length = numbers
    if length <= 0:
        raise ConfigError(f"config.json: original_max_position_embeddings is {length}: it must be above 0")
    growth = Growth(float(strength), float(length))
    found = heads(f, theta=1e6, window=f.size_or_none("sliding_window"), growth=growth)
    assert found.rope is not None
    read = {name: value for name, value in found.rope.parameters.items() if name not in _NOT_READ}
    return replace(found, rope=replace(found.rope, parameters=read))


FAMILIES = (
    Family(
        "ministral3",
        _ministral3,
        {
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 262144,
            "rms_norm_eps": 1e-5,
            "rope_parameters": _YARN,
        },
    ),
)
