"""MiniMax-M2: queries and keys normed over all heads, and nothing but routed experts behind them."""

from __future__ import annotations

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.decoders.rope import read_rope


def _minimax_m2(f: Fields) -> ModelConfig:
    f.only("qk_norm_type", "per_layer")
    f.only("tie_word_embeddings", False)  # SGLang's class has a head apart, and reads none
    for name, served in (("use_qk_norm", True), ("use_routing_bias", True), ("scoring_func", "sigmoid")):
        if f.get(name) != served:
            f.cannot(f"{name} is not {served!r}: SGLang asks for it, and this runtime computes that")
    f.only("shared_intermediate_size", 0)
    width = f.size("head_dim")
    rope = read_rope(f, width, theta=5e6, share=f.size("rotary_dim", width) / width)
    moe = routed(f, "intermediate_size", scoring="sigmoid", correction_bias=True, router_in_fp32=True)
    attention = heads(f, rope=rope, qk_norm="all")
    kinds = everywhere(f, "full"), everywhere(f, "moe")
    return model(f, {"full": attention}, *kinds, moe=moe)


FAMILIES = (
    Family(
        "minimax_m2",
        _minimax_m2,
        {
            "intermediate_size": 1536,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 196608,
            "rms_norm_eps": 1e-6,
            "num_experts_per_tok": 8,
            "num_local_experts": 256,
        },
    ),
)
