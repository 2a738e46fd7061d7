"""Gemma 3 without images: a scaled embedding, norms around each half of a layer, windows in most layers."""

from dataclasses import dataclass, replace

from runtime.models.parts import SLIDES, heads, model
from runtime.models.reading import Config, members
from runtime.models.rope import read_rope
from runtime.server.config import ModelConfig, Traits
from runtime.server.errors import ConfigError
from runtime.server.family import Family
from runtime.server.layer_config import AttentionConfig, RopeConfig


@dataclass(frozen=True, kw_only=True)
class Gemma3Config(Config):
    ONLY = members(
        use_bidirectional_attention=(False,),
        attn_logit_softcapping=(),
        hidden_activation=("gelu_pytorch_tanh",),
    )

    intermediate_size: int = 9216
    num_key_value_heads: int | None = 4
    head_dim: int | None = 256
    max_position_embeddings: int = 131072
    tie_word_embeddings: bool = True
    query_pre_attn_scalar: float = 256
    sliding_window: int | None = 4096
    sliding_window_pattern: int = 6
    rope_local_base_freq: float = 10000.0
    final_logit_softcapping: float | None = None


def gemma3(c: Gemma3Config) -> ModelConfig:
    layers, every = c.num_hidden_layers, c.sliding_window_pattern
    counted = ["sliding" if (i + 1) % every else "full" for i in range(layers)]
    kinds = c.each_layer("layer_types", SLIDES) or counted
    if "sliding" in kinds and not c.sliding_window:
        raise ConfigError("config.json: layer_types names sliding_attention without a sliding_window")
    return model(
        c,
        {kind: _attention(c, kind) for kind in dict.fromkeys(kinds)},
        kinds,
        ["dense"] * layers,
        vocabulary={"whole": True, "multiplier": c.hidden_size**0.5, "logit_cap": c.final_logit_softcapping},
        style={"norms": "sandwich", "activation": "gelu_tanh"},
        traits=Traits(splits_over_tp=True),
    )


def _attention(c: Gemma3Config, kind: str) -> AttentionConfig:
    own = {"scale": c.query_pre_attn_scalar**-0.5, "bias": c.attention_bias, "output_bias": c.attention_bias}
    if kind == "full":
        return heads(c, {"kind": "full_attention", "theta": 1e6}, qk_norm="head", **own)
    return replace(heads(c, None, window=c.sliding_window, qk_norm="head", **own), rope=_local(c))


def _local(c: Gemma3Config) -> RopeConfig:
    """Return the rope of layers with a window, from `rope_parameters` or, in older files, from its base."""
    width, local = c.head_width, c.rope_local_base_freq
    if "sliding_attention" in c.section("rope_parameters"):
        return read_rope(c, width, kind="sliding_attention", theta=local)
    parameters = {"rope_type": "default", "rope_theta": local}
    return RopeConfig(width, local, c.max_position_embeddings, parameters=parameters)


_CLASSES = ("Gemma3ForCausalLM", "Gemma3TextConfig")
FAMILIES = (Family("gemma3_text", *_CLASSES, Gemma3Config, gemma3, dtype_of_float32="bfloat16"),)
