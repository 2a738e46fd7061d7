"""ERNIE 4.5's text models, dense or of experts: pairs of neighbours are turned."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, which
from runtime.server.layer_config import AttentionConfig, MoEConfig


def _dense(f: Fields) -> ModelConfig:
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), everywhere(f, "dense"))


def _of_experts(f: Fields) -> ModelConfig:
    f.only("moe_norm_min", 1e-12)
    inner = f.size("moe_intermediate_size")
    moe = MoEConfig(
        num_experts=f.size(f.spelled("moe_num_experts", "num_experts")),
        top_k=f.size(f.spelled("moe_k", "num_experts_per_tok")),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("moe_num_shared_experts"),
        correction_bias=True,
    )
    return model(f, {"full": _attention(f)}, everywhere(f, "full"), _mlps(f), moe=moe)


def _attention(f: Fields) -> AttentionConfig:
    f.only("use_bias", False)
    return heads(f, theta=500000.0, is_interleaved=True)


def _mlps(f: Fields) -> list[str]:
    layers = f.size("num_hidden_layers")
    first, every = f.count("moe_layer_start_index"), f.size("moe_layer_interval")
    last = layers if f.get("moe_layer_end_index") == -1 else f.count("moe_layer_end_index")
    return which(layers, lambda i: first <= i <= last and (i + 1) % every == 0)


_COMMON = {"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}

FAMILIES = (
    Family(
        "ernie4_5",
        _dense,
        {**_COMMON, "intermediate_size": 3072, "num_key_value_heads": 2, "head_dim": 128},
    ),
    Family(
        "ernie4_5_moe",
        _of_experts,
        {
            **_COMMON,
            "intermediate_size": 12288,
            "num_key_value_heads": 4,
            "moe_intermediate_size": 1536,
            "moe_k": 6,
            "moe_num_experts": 64,
            "moe_num_shared_experts": 2,
            "moe_layer_start_index": 1,
            "moe_layer_end_index": -1,
            "moe_layer_interval": 1,
        },
    ),
)
