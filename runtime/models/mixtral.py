"""Mixtral: experts in every layer, and the same window in all layers, if any."""

from dataclasses import dataclass

from runtime.models.parts import SILU, by_window, model
from runtime.models.reading import Config, members, shown
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family
from runtime.server.layer_config import MoEConfig, TensorNames

_TRAITS = Traits(splits_over_tp=True, names=TensorNames(experts="block_sparse_moe"))


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(Config):
    ONLY = members(hidden_act=SILU, tie_word_embeddings=(False,))
    SPELLED = members(num_local_experts=("num_experts",))

    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    rms_norm_eps: float = 1e-5
    num_experts_per_tok: int = 2
    num_local_experts: int = 8
    sliding_window: int | None = None


def mixtral(c: MixtralConfig) -> ModelConfig:
    """Refuse what srt/models/mixtral.py ignores: it divides the hidden size among the heads, takes only a
    base for the rope, and has a head of its own."""
    if c.head_width != c.hidden_size // c.num_attention_heads:
        c.cannot(f"head_dim is {c.head_width}: SGLang divides the hidden size among the heads")
    layers = c.num_hidden_layers
    kinds = ["sliding" if c.sliding_window else "full"] * layers
    attention = by_window(c, kinds, c.sliding_window, rope={"theta": 1e6})
    rope = attention[kinds[0]].rope
    assert rope is not None
    if rope.parameters["rope_type"] != "default":
        stretched = shown(rope.parameters["rope_type"])
        c.cannot(f"rope_type is {stretched}: SGLang stretches no rope of this family")
    if rope.theta != int(rope.theta):
        c.cannot(f"rope_theta is {rope.theta}: SGLang takes its whole part")
    moe = MoEConfig(c.num_local_experts, c.num_experts_per_tok, c.intermediate_size)
    return model(c, attention, kinds, ["moe"] * layers, moe=moe, traits=_TRAITS)


FAMILIES = (Family("mixtral", "MixtralForCausalLM", "MixtralConfig", MixtralConfig, mixtral),)
