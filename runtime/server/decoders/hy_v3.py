"""Hunyuan 3: heads that are normed and turned, sigmoid experts with a correction behind a few dense layers.

Which layers are dense, that shares add up and that heads are normed, SGLang takes from fields that
transformers' class does not have: where a file leaves them out, the two are models apart.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import MLPS, everywhere, heads, model, routed, which
from runtime.server.layer_config import AttentionConfig, MoEConfig
from runtime.server.tensor_names import ServedNames, TensorNames


def _hy_v3(f: Fields) -> ModelConfig:
    f.only("mlp_bias", False)
    return model(
        f,
        {"full": _attention(f)},
        everywhere(f, "full"),
        _mlps(f),
        moe=_routed(f),
        names=TensorNames(shared="shared_mlp", served=ServedNames(((r"^model\.", ".model."),))),
    )


def _mlps(f: Fields) -> list[str]:
    """By a count that transformers does not read, which has the first layer alone where no list is told."""
    layers, first = f.size("num_hidden_layers"), f.count("first_k_dense_replace")
    ours = which(layers, lambda i: i >= first)
    told = f.per_layer("mlp_layer_types", layers, MLPS)
    if ours != (which(layers, bool) if told is None else told):
        f.cannot(f"mlp_layer_types are not those of first_k_dense_replace {first}: SGLang goes by that alone")
    return ours


def _attention(f: Fields) -> AttentionConfig:
    f.only("attention_bias", False)
    if not f.flag(f.spelled("use_qk_norm", "qk_norm")):
        f.cannot("use_qk_norm and qk_norm are not told: SGLang then norms no heads, transformers does")
    attention = heads(f, theta=11158840.0, qk_norm="head")
    assert attention.rope is not None
    kind = attention.rope.parameters["rope_type"]
    if kind != "default":
        f.cannot(f"rope_type is {kind!r}: SGLang stretches no rope of this family")
    return attention


def _routed(f: Fields) -> MoEConfig:
    if not f.flag("route_norm"):
        f.cannot("route_norm is not true: transformers' shares add up to one, and SGLang asks for the field")
    if not f.count("num_shared_experts"):
        f.cannot("num_shared_experts is 0: transformers has one then, SGLang none")
    plain = routed(
        f,
        "moe_intermediate_size",
        scoring="sigmoid",
        correction_bias=True,
        router_in_fp32=True,
        routed_scaling_factor=f.number("router_scaling_factor"),
    )
    return replace(plain, shared_intermediate_size=plain.intermediate_size * f.count("num_shared_experts"))


FAMILIES = (
    Family(
        "hy_v3",
        _hy_v3,
        {
            "intermediate_size": 13312,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "num_experts": 192,
            "num_experts_per_tok": 8,
            "num_shared_experts": 1,
            "moe_intermediate_size": 1536,
            "router_scaling_factor": 2.826,
        },
    ),
)
