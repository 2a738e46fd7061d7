"""Llama and Mistral: grouped-query attention and dense layers."""

from dataclasses import dataclass

from runtime.models.parts import SILU, by_window, heads, model
from runtime.models.reading import Config, members
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family

_TRAITS = Traits(splits_over_tp=True)


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(Config):
    ONLY = members(hidden_act=SILU, mlp_bias=(False,))

    intermediate_size: int = 11008
    max_position_embeddings: int = 2048


@dataclass(frozen=True, kw_only=True)
class MistralConfig(Config):
    ONLY = members(hidden_act=SILU, rope_is_neox_style=(True,))

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    sliding_window: int | None = 4096


def llama(c: LlamaConfig) -> ModelConfig:
    layers, bias = c.num_hidden_layers, c.attention_bias
    attention = heads(c, bias=bias, output_bias=bias)
    return model(c, {"full": attention}, ["full"] * layers, ["dense"] * layers, traits=_TRAITS)


def mistral(c: MistralConfig) -> ModelConfig:
    layers = c.num_hidden_layers
    kinds = ["sliding" if c.sliding_window else "full"] * layers
    return model(c, by_window(c, kinds, c.sliding_window), kinds, ["dense"] * layers, traits=_TRAITS)


FAMILIES = (
    Family("llama", "LlamaForCausalLM", "LlamaConfig", LlamaConfig, llama),
    Family("mistral", "MistralForCausalLM", "MistralConfig", MistralConfig, mistral),
)
