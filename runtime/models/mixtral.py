"""Mixtral: experts in every layer, and the same window in all layers, if any."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.models.parts import by_window, model
from runtime.models.reading import Config, members
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family
from runtime.server.layer_config import MoEConfig, TensorNames

_TRAITS = Traits(splits_over_tp=True, names=TensorNames(experts="block_sparse_moe"))


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(Config):
    ONLY = members(tie_word_embeddings=(False,))
    SPELLED = members(num_local_experts=("num_experts",))

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    num_experts_per_tok: int = 2
    num_local_experts: int = 8
    sliding_window: int | None = None


def mixtral(c: MixtralConfig) -> ModelConfig:
    if c.head_width != c.hidden_size // c.num_attention_heads:
        c.cannot(f"head_dim is {c.head_width}: SGLang divides the hidden size among the heads")
    layers = c.num_hidden_layers
    kinds = ["sliding" if c.sliding_window else "full"] * layers
    attention = by_window(c, kinds, c.sliding_window)
    moe = MoEConfig(c.num_local_experts, c.num_experts_per_tok, c.intermediate_size)
    return model(c, attention, kinds, ["moe"] * layers, moe=moe, traits=_TRAITS)


FAMILIES = (Family("mixtral", "MixtralForCausalLM", "MixtralConfig", MixtralConfig, mixtral),)
