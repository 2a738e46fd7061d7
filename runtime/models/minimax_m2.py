"""MiniMax-M2: queries and keys normed over all heads, and only routed experts after attention."""

from dataclasses import dataclass

from runtime.models.parts import SILU, heads, model
from runtime.models.reading import Config, members
from runtime.server.asked import Asked
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel
from runtime.server.layer_config import MoEConfig, TensorNames

_REQUIRED = (("use_qk_norm", True), ("use_routing_bias", True), ("scoring_func", "sigmoid"))
_TRAITS = Traits(names=TensorNames(experts="block_sparse_moe"))


@dataclass(frozen=True, kw_only=True)
class MiniMaxM2Config(Config):
    ONLY = members(
        hidden_act=SILU,
        qk_norm_type=("per_layer",),
        tie_word_embeddings=(False,),
        shared_intermediate_size=(0,),
    )
    SPELLED = members(num_local_experts=("num_experts",))

    intermediate_size: int = 1536
    num_key_value_heads: int | None = 8
    head_dim: int | None = 128
    rotary_dim: int | None = None
    max_position_embeddings: int = 196608
    num_experts_per_tok: int = 8
    num_local_experts: int = 256


def minimax_m2(c: MiniMaxM2Config) -> ModelConfig:
    for name, served in _REQUIRED:
        if c.hf.get(name) != served:
            c.cannot(f"{name} is not {served!r}: SGLang asks for it, and this runtime computes that")
    counts = c.num_local_experts, c.num_experts_per_tok, c.intermediate_size
    moe = MoEConfig(*counts, scoring="sigmoid", correction_bias=True, router_in_fp32=True)
    share = (c.rotary_dim or c.head_width) / c.head_width
    attention = heads(c, {"theta": 5e6, "share": share}, qk_norm="all")
    kinds = ["full"] * c.num_hidden_layers, ["moe"] * c.num_hidden_layers
    return model(c, {"full": attention}, *kinds, moe=moe, traits=_TRAITS)


def experts(asked: Asked, weights: Weights, gpu: GpuModel) -> str | None:
    in_fp4 = weights.stored == "modelopt_fp4" and gpu.major == 10
    return "flashinfer_trtllm_routed" if in_fp4 else None


FAMILIES = (
    Family(
        "minimax_m2", "MiniMaxM2ForCausalLM", "MiniMaxM2Config", MiniMaxM2Config, minimax_m2, experts=experts
    ),
)
