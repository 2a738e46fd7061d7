"""GLM-4.5 to 4.7: half of each head is rotated, and experts follow a few dense layers."""

from dataclasses import dataclass

from runtime.models.parts import SILU, Routed, heads, model
from runtime.models.reading import members
from runtime.server.choices.experts import by_trtllm
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family


@dataclass(frozen=True, kw_only=True)
class Glm4Config(Routed):
    ONLY = members(hidden_act=SILU, tie_word_embeddings=(False,))

    intermediate_size: int = 10944
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 131072
    rms_norm_eps: float = 1e-5
    moe_intermediate_size: int = 1408
    num_experts_per_tok: int = 8
    n_shared_experts: int = 1
    n_routed_experts: int = 128
    first_k_dense_replace: int = 1
    use_qk_norm: bool = False


def glm4_moe(c: Glm4Config) -> ModelConfig:
    norm = "head" if c.use_qk_norm else "none"
    attention = heads(c, {"share": 0.5}, bias=c.attention_bias, qk_norm=norm)
    kinds, moe = ["full"] * c.num_hidden_layers, c.routed(router_in_fp32=True)
    traits = Traits(routing="deepseek", draft="experts", plain_fp4_draft=True, fuses_shared_of=-1)
    return model(c, {"full": attention}, kinds, c.dense_first(), moe=moe, traits=traits)


FAMILIES = (
    Family(
        "glm4_moe",
        "Glm4MoeForCausalLM",
        "Glm4MoeConfig",
        Glm4Config,
        glm4_moe,
        experts=by_trtllm(None, "modelopt_fp4"),
        writes_method=True,
    ),
)
