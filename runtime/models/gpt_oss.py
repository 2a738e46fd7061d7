"""gpt-oss: a window in every other layer, attention sinks, experts with biases and a clamped gate."""

from dataclasses import dataclass

from runtime.models.parts import SILU, SLIDES, by_window, model
from runtime.models.reading import Config, members
from runtime.server.asked import Asked
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family, Weights
from runtime.server.gpus import GpuModel
from runtime.server.layer_config import MoEConfig

_YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True, kw_only=True)
class GptOssConfig(Config):
    ONLY = members(hidden_act=SILU, tie_word_embeddings=(False,))
    SPELLED = members(num_local_experts=("num_experts",))

    intermediate_size: int = 2880
    head_dim: int | None = 64
    num_key_value_heads: int | None = 8
    sliding_window: int = 128
    max_position_embeddings: int = 131072
    rms_norm_eps: float = 1e-5
    num_experts_per_tok: int = 4
    num_local_experts: int = 128
    swiglu_alpha: float = 1.702
    swiglu_limit: float = 7.0
    attention_bias: bool = True


def gpt_oss(c: GptOssConfig) -> ModelConfig:
    layers, bias = c.num_hidden_layers, c.attention_bias
    kinds = c.each_layer("layer_types", SLIDES) or (["sliding", "full"] * layers)[:layers]
    rope = {"theta": 150000.0, "told": _YARN}
    own = {"bias": bias, "output_bias": bias, "sinks": True}
    attention = by_window(c, kinds, c.sliding_window, rope=rope, **own)
    counts = c.num_local_experts, c.num_experts_per_tok, c.intermediate_size
    moe = MoEConfig(*counts, biases=True, swiglu=(c.swiglu_alpha, c.swiglu_limit))
    traits = Traits(window_pool=True, quantizes_experts_alone=True)
    return model(c, attention, kinds, ["moe"] * layers, moe=moe, traits=traits)


def attention(asked: Asked, major: int, page: int | None) -> tuple[str, int | None]:
    return {10: "trtllm_mha", 9: "fa3"}.get(major, "triton"), page


def experts(asked: Asked, weights: Weights, gpu: GpuModel) -> str | None:
    if weights.declared == "mxfp4" and gpu.major in (10, 12):
        return "flashinfer_mxfp4"
    return "triton_kernel" if asked.ep_size == 1 and weights.asked is None else None


FAMILIES = (
    Family(
        "gpt_oss",
        "GptOssForCausalLM",
        "GptOssConfig",
        GptOssConfig,
        gpt_oss,
        attention=attention,
        experts=experts,
    ),
)
