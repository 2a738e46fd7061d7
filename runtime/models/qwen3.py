"""Qwen3, dense and with experts: grouped-query attention with normed heads, and a window in some layers."""

from dataclasses import dataclass
from typing import Any

from runtime.models.parts import SILU, SLIDES, SoftRouted, by_window, model
from runtime.models.reading import Config, members
from runtime.server.choices.experts import by_trtllm
from runtime.server.config import ModelConfig, Traits
from runtime.server.family import Family


@dataclass(frozen=True, kw_only=True)
class Windowed(Config):
    ONLY = members(hidden_act=SILU)

    max_position_embeddings: int = 32768
    use_sliding_window: bool = False
    sliding_window: int | None = 4096

    @property
    def window(self) -> int | None:
        return self.sliding_window or None if self.use_sliding_window else None

    def attention(self) -> dict[str, Any]:
        return {"bias": self.attention_bias, "output_bias": self.attention_bias, "qk_norm": "head"}


@dataclass(frozen=True, kw_only=True)
class Qwen3Config(Windowed):
    intermediate_size: int = 22016
    num_key_value_heads: int | None = 32
    head_dim: int | None = 128
    max_window_layers: int = 28


@dataclass(frozen=True, kw_only=True)
class Qwen3MoeConfig(Windowed, SoftRouted):
    ONLY = members(hidden_act=SILU, tie_word_embeddings=(False,))

    intermediate_size: int = 6144
    num_key_value_heads: int | None = 4
    moe_intermediate_size: int = 768
    num_experts_per_tok: int = 8
    num_experts: int = 128


def qwen3(c: Qwen3Config) -> ModelConfig:
    layers, first = c.num_hidden_layers, c.max_window_layers
    counted = ["sliding" if c.window and i >= first else "full" for i in range(layers)]
    kinds = c.each_layer("layer_types", SLIDES) or counted
    return model(c, by_window(c, kinds, c.window, **c.attention()), kinds, ["dense"] * layers)


def qwen3_moe(c: Qwen3MoeConfig) -> ModelConfig:
    kinds = ["sliding" if c.window else "full"] * c.num_hidden_layers
    attention = by_window(c, kinds, c.window, **c.attention())
    traits = Traits(routing="softmax", draft="first")
    return model(c, attention, kinds, c.sparse(), moe=c.routed(), traits=traits)


FAMILIES = (
    Family("qwen3", "Qwen3ForCausalLM", "Qwen3Config", Qwen3Config, qwen3),
    Family(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        "Qwen3MoeConfig",
        Qwen3MoeConfig,
        qwen3_moe,
        experts=by_trtllm(None, "fp8", "modelopt_fp4"),
        writes_method=True,
    ),
)
