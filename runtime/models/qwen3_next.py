"""Qwen3-Next: gated delta nets, and gated attention in every fourth layer."""

from dataclasses import dataclass

from runtime.models.parts import SILU, SoftRouted, check_both, heads, model
from runtime.models.reading import members
from runtime.server.asked import Asked
from runtime.server.choices.attention import by_heads
from runtime.server.choices.experts import by_trtllm
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family
from runtime.server.layer_config import GatedDeltaConfig

_MIXERS = {"full_attention": "full", "linear_attention": "recurrent"}


@dataclass(frozen=True, kw_only=True)
class DeltaConfig(SoftRouted):
    """The fields of its recurrent layers."""

    linear_conv_kernel_dim: int = 4
    linear_key_head_dim: int = 128
    linear_value_head_dim: int = 128
    linear_num_key_heads: int = 16
    linear_num_value_heads: int = 32

    def delta(self) -> GatedDeltaConfig:
        return GatedDeltaConfig(
            self.linear_num_key_heads,
            self.linear_num_value_heads,
            self.linear_key_head_dim,
            self.linear_value_head_dim,
            self.linear_conv_kernel_dim,
        )


@dataclass(frozen=True, kw_only=True)
class Qwen3NextConfig(DeltaConfig):
    """The fields that SGLang's class reads: no attention biases, one kind of gate, and an untied head."""

    ONLY = members(
        hidden_act=SILU,
        tie_word_embeddings=(False,),
        attention_bias=(False,),
        output_gate_type=SILU,
        attn_output_gate=(True,),
    )

    num_attention_heads: int = 16
    num_key_value_heads: int | None = 2
    max_position_embeddings: int = 32768
    head_dim: int | None = 256
    intermediate_size: int = 5632
    moe_intermediate_size: int = 512
    shared_expert_intermediate_size: int = 512
    num_experts_per_tok: int = 10
    num_experts: int = 512
    norm_topk_prob: bool = True
    full_attention_interval: int = 4


def qwen3_next(c: Qwen3NextConfig) -> ModelConfig:
    if c.section("rope_parameters").get("rope_type", "default") != "default":
        c.cannot("rope_parameters are stretched: SGLang's class of this family takes rope_scaling for that")
    kinds = _kinds(c)
    check_both(c, kinds)
    attention = heads(c, {"share": 0.25}, qk_norm="head", output_gate=True)
    moe = c.routed(shared_intermediate_size=c.shared_expert_intermediate_size, shared_gate=True)
    return model(
        c,
        {"full": attention},
        kinds,
        c.sparse(),
        moe=moe,
        recurrent=c.delta() if "recurrent" in kinds else None,
        traits=Traits(routing="softmax", draft="experts", fuses_shared_of=-1),
    )


def _kinds(c: Qwen3NextConfig) -> list[str]:
    every = c.full_attention_interval
    counted = ["recurrent" if (i + 1) % every else "full" for i in range(c.num_hidden_layers)]
    if c.hf.get("full_attention_interval") is None:  # which makes a server exit
        return c.each_layer("layer_types", _MIXERS) or counted
    return c.counted("layer_types", _MIXERS, counted, f"full_attention_interval {every}")


def attention(asked: Asked, major: int, page: int | None) -> tuple[str, int | None]:
    if major != 10:
        return by_heads(asked, major), page
    pages = asked.disable_radix_cache or asked.speculative_algorithm is not None
    return ("trtllm_mha", 64) if pages and by_heads(asked, major) == "trtllm_mha" else ("triton", 1)


FAMILIES = (
    Family(
        "qwen3_next",
        "Qwen3NextForCausalLM",
        "Qwen3NextConfig",
        Qwen3NextConfig,
        qwen3_next,
        attention=attention,
        experts=by_trtllm(None, "fp8", "modelopt_fp4"),
        writes_method=True,
        keeps_states=True,
    ),
)
