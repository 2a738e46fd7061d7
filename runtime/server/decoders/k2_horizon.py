"""K2 Horizon: rows normed in groups; a Llama, one with experts by a sigmoid, or one whose attention is behind
gates and whose values are the best of many.

transformers has no class of it, and SGLang's config class no fields: srt/models/xllm.py tells what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import heads, model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MoEConfig, RopeConfig

# Of others its class ends, or nothing is computed here.
_ALONE: Mapping[str, Any] = {
    **dict.fromkeys(("attention_bias", "query_key_norm", "tie_word_embeddings", "use_sliding_window"), False),
    "decoder_sparse_step": 1,
    "router_score_func": "sigmoid",
}
_NEEDED = (
    *("num_key_value_heads", "rope_parameters", "mlp_only_layers", "rms_norm_eps", "intermediate_size"),
    *("max_position_embeddings", "hidden_act", "tie_word_embeddings"),
)
_OF_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
_PARTS = "xllm_source_router_gemm_partitions"


def _k2_horizon(f: Fields) -> ModelConfig:
    _check(f)
    values = f.count("mova_num_experts")
    first, layers = _first_dense(f), f.size("num_hidden_layers")
    has_experts = f.count("num_experts") > 0
    kinds = which(layers, lambda layer: has_experts and layer >= first)
    attention = {"full": _heads(f)} if not values else {"full": _gated(f), "routed": _gated(f, _values(f))}
    named = ["routed" if values and layer >= first else "full" for layer in range(layers)]
    groups = f.size("layernorm_num_groups", 1)
    if f.size("hidden_size") % groups:
        raise ConfigError(f"config.json: layernorm_num_groups is {groups}: hidden_size is no multiple of it")
    return model(
        f,
        {kind: attention[kind] for kind in dict.fromkeys(named)},
        named,
        kinds,
        moe=_experts(f) if has_experts else None,
        norm_groups=groups,
        wide_norms=groups > 1 or values > 0,
    )


def _check(f: Fields) -> None:
    for name, value in _ALONE.items():
        f.only(name, value)
    f.only("sliding_window")
    routes, values = f.count("num_experts") > 0, f.count("mova_num_experts") > 0
    for name in (*_NEEDED, *(_OF_EXPERTS if routes else ())):
        if not f.tells(name):
            f.cannot(f"{name} is missing: SGLang's config class has no other")
    if not routes:
        for name in ("num_experts_per_tok", "num_shared_experts", "mova_num_experts"):
            if f.count(name):
                f.cannot(f"{name} is {f.get(name)} beside no experts: SGLang ends")
    if values and not f.tells(_PARTS):
        f.cannot(f"{_PARTS} is missing: SGLang ends without one of 1 or 2, by --json-model-override-args")
    f.only(_PARTS, 1, 2)
    if not values and f.has("attention_gate_func"):
        f.cannot("attention_gate_func is told without mova_num_experts: SGLang ends")


def _first_dense(f: Fields) -> int:
    listed, layers = sorted(f.layer_numbers("mlp_only_layers")), f.size("num_hidden_layers")
    if listed != [*range(len(listed))] or len(listed) > layers:
        f.cannot("mlp_only_layers are not the first so many: SGLang ends")
    if not f.count("num_experts") and len(listed) != layers:
        f.cannot("mlp_only_layers are not all layers, beside no experts: SGLang ends")
    return len(listed)


def _heads(f: Fields, **own: Any) -> AttentionConfig:
    width = f.size("head_dim", f.size("hidden_size") // f.size("num_attention_heads"))
    f.only("rope_head_dim", width)
    return heads(f, kv_count=f.size("num_key_value_heads"), width=width, rope=_rope(f, width), **own)


def _rope(f: Fields, width: int) -> RopeConfig:
    told = f.section("rope_parameters")
    kind = told.get("rope_type", told.get("type"))
    if kind != "default":
        f.cannot(f"rope_type is {repr(kind)[:60]}: of this family no rope is stretched here")
    for name in told.keys() - {"rope_type", "type", "rope_theta"}:
        f.cannot(f"rope_parameters has {name[:60]}: of this family no rope is stretched here")
    if told.get("rope_theta") is None:
        f.cannot("rope_parameters has no rope_theta")
    theta = checked_number("rope_theta", told.get("rope_theta") or 1e7)
    f.only("rope_theta", theta)
    f.only("rope_scaling")
    if theta <= 0 or width % 2:
        raise ConfigError(f"config.json: heads of {width} values cannot be turned by a base of {theta}")
    parameters = {"rope_type": "default", "rope_theta": theta}
    return RopeConfig(width, theta, f.size("max_position_embeddings"), parameters=parameters)


def _gated(f: Fields, values: MoEConfig | None = None) -> AttentionConfig:
    by = f.get("attention_gate_func")
    if by not in ("silu", "softplus"):
        f.cannot(f"attention_gate_func is {repr(by)[:60]}: SGLang computes 'silu' or 'softplus'")
    gate: Literal["silu", "softplus"] = "silu" if by == "silu" else "softplus"
    return _heads(f, value_gate_by=gate, routed=values)


def _experts(f: Fields) -> MoEConfig:
    inner = f.size("moe_intermediate_size")
    shared = inner * f.count("num_shared_experts")
    return _routed(f, "num_experts", "num_experts_per_tok", inner, shared)


def _values(f: Fields) -> MoEConfig:
    return _routed(f, "mova_num_experts", "mova_num_experts_per_tok", 1, 0)


def _routed(f: Fields, count: str, chosen: str, inner: int, shared: int) -> MoEConfig:
    top_k, renormalizes = f.size(chosen), f.flag("norm_topk_prob")
    if top_k > f.size(count):
        f.cannot(f"{chosen} is {top_k}: there are {f.size(count)} to choose from")
    return MoEConfig(
        num_experts=f.size(count),
        top_k=top_k,
        intermediate_size=inner,
        shared_intermediate_size=shared,
        scoring="sigmoid",
        renormalize=renormalizes and (top_k > 1 or count == "num_experts"),
        correction_bias=f.flag("moe_gate_bias"),
        routed_scaling_factor=f.number("router_scaling_factor"),
    )


FAMILIES = (
    Family(
        "k2_horizon",
        _k2_horizon,
        {
            "intermediate_size": 12288,
            "num_key_value_heads": 8,
            "max_position_embeddings": 524288,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7},
            "layernorm_num_groups": 1,
            "router_scaling_factor": 1.0,
            "router_score_func": "sigmoid",
            "decoder_sparse_step": 1,
            "norm_topk_prob": True,
            "mova_num_experts": 0,
            "num_experts": 0,
        },
    ),
)
