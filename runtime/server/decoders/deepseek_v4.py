"""DeepSeek-V4: a window with compressed keys behind it, several residual streams, and experts that are chosen
by a token's number in the first layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, indexer, model
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import (
    AttentionConfig,
    Caps,
    CompressedConfig,
    MoEConfig,
    RopeConfig,
    StreamsConfig,
)
from runtime.server.tensor_names import TensorNames

_KINDS = {
    "sliding_attention": "sliding",
    "compressed_sparse_attention": "sparse",
    "heavily_compressed_attention": "heavy",
}
_BY_RATIO = {0: "sliding", 4: "sparse", 128: "heavy"}
_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
# Where config.json does not say: of a head's values, and of layers; transformers' alone are the last two.
_TURNED, _HASHED, _LIMIT = 64, 3, 10.0


def _v4(f: Fields) -> ModelConfig:
    _only_v4s(f)
    kinds = _attention_kinds(f)
    attention = {kind: _attention(f, kind) for kind in dict.fromkeys(kinds)}
    return model(
        f,
        attention,
        kinds,
        everywhere(f, "moe"),
        moe=_routed(f),
        compressed=_compressed(f),
        streams=_streams(f),
        caps=_caps(f, len(kinds)),
        intermediate_size=0,
        whole_embedding=True,
        names=TensorNames(attention_out="o_b_proj"),
    )


def _only_v4s(f: Fields) -> None:
    """What its classes do whatever these say, or know nothing else of."""
    for name in ("attention_bias", "mlp_bias", "hc_pre_from_prev_sublayer"):
        f.only(name, False)
    for name in ("num_key_value_heads", "n_shared_experts"):
        f.only(name, 1)
    f.only("scoring_func", "sqrtsoftplus")
    f.only("topk_method", "noaux_tc")
    f.only("norm_topk_prob", True)
    f.only("q_head_norm", True)


def _attention_kinds(f: Fields) -> list[str]:
    """Told layer by layer, in either spelling; else two that compress heavily, and then by turns."""
    layers = f.size("num_hidden_layers")
    told, ratios = f.per_layer("layer_types", layers, _KINDS), f.get("compress_ratios")
    if ratios is None:
        f.cannot("compress_ratios is left out: SGLang knows no other list of its layers")
        return told or [*["heavy"] * 2, *["heavy", "sparse"] * layers][:layers]
    if not isinstance(ratios, list) or len(ratios) < layers:
        raise ConfigError(
            f"config.json: compress_ratios is {repr(ratios)[:60]}: a list of {layers} is needed"
        )
    for ratio in ratios[:layers]:
        if type(ratio) is not int or ratio not in _BY_RATIO:
            raise Unsupported(f"config.json: compress_ratios has {repr(ratio)[:60]}: here are 0, 4 and 128")
    listed = [_BY_RATIO[ratio] for ratio in ratios[:layers]]
    if told not in (None, listed):
        f.cannot("layer_types is not what compress_ratios is: transformers goes by one, SGLang by the other")
    return told or listed


def _attention(f: Fields, kind: str) -> AttentionConfig:
    heads, width = f.size("num_attention_heads"), f.size("head_dim")
    rope, window = _rope(f, kind != "sliding", width), f.size("sliding_window")
    return AttentionConfig(heads, 1, width, rope, width**-0.5, window=window, sinks=True)


def _rope(f: Fields, is_compressed: bool, width: int) -> RopeConfig:
    """Stretched in layers that compress, where it is told as yarn; those with a window alone have another."""
    turned = f.size("qk_rope_head_dim", _TURNED)
    share = f.number("partial_rotary_factor", turned / width)
    if turned % 2 or int(width * share) != turned:
        f.cannot(
            f"partial_rotary_factor is {share}, qk_rope_head_dim {turned}, of {width}: not as many pairs"
        )
    told = f.section("rope_scaling") or f.section("rope_parameters")
    if "main" in told or "compress" in told:
        f.cannot("rope_parameters are told by kind of layer: SGLang knows them of one kind alone")
        told = {}
    thetas = {name: f.number(name) for name in ("rope_theta", "compress_rope_theta")}
    for name, theta in thetas.items():
        if theta <= 0:
            raise ConfigError(f"config.json: {name} is {theta}: it must be above 0")
    theta = thetas["compress_rope_theta" if is_compressed else "rope_theta"]
    stretch, longest = _stretched(f, told) if is_compressed else {}, f.size("max_position_embeddings")
    return RopeConfig(turned, theta, longest, interleaved=True, parameters={"rope_theta": theta, **stretch})


def _stretched(f: Fields, told: Mapping[str, Any]) -> dict[str, Any]:
    """As SGLang has it: yarn of whole dimensions, and no factor on what is turned."""
    kind = told.get("rope_type") or told.get("type") or "default"
    needed = ("factor", "original_max_position_embeddings")
    if kind != "yarn" or any(told.get(name) is None for name in needed):
        f.cannot(
            f"rope_type is {repr(kind)[:60]}: SGLang turns compressed keys by yarn, of {needed} at least"
        )
        return {"rope_type": "default"}
    for name in needed:
        if checked_number(f"rope_scaling: {name}", told[name]) <= 0:
            raise ConfigError(f"config.json: rope_scaling: {name} is {told[name]}: it must be above 0")
    for name, served in (("attention_factor", (None, 1, 1.0)), ("truncate", (None, True))):
        if told.get(name) not in served:
            f.cannot(f"rope_scaling: {name} is {repr(told[name])[:60]}: SGLang reads none")
    betas = {name: told[name] for name in ("beta_fast", "beta_slow") if told.get(name) is not None}
    for name, value in betas.items():
        checked_number(f"rope_scaling: {name}", value)
    kept = {name: told[name] for name in needed}
    return {"rope_type": "yarn", "attention_factor": 1.0, **kept, **betas}


def _compressed(f: Fields) -> CompressedConfig:
    for name, rate in f.section("compress_rates").items():
        if rate != _RATES.get(name):
            f.cannot(f"compress_rates: {str(name)[:60]} is {repr(rate)[:60]}: SGLang has {_RATES}")
    own = CompressedConfig(
        q_lora_rank=f.size("q_lora_rank"),
        output_groups=f.size("o_groups"),
        output_rank=f.size("o_lora_rank"),
        indexer=indexer(f, is_interleaved=True),
        rates={_KINDS[name]: rate for name, rate in _RATES.items()},
        behind=_behind(f),
    )
    heads, turned = f.size("num_attention_heads"), f.size("qk_rope_head_dim", _TURNED)
    if heads % own.output_groups:
        raise ConfigError(f"config.json: o_groups {own.output_groups} does not divide {heads} heads")
    if own.indexer.head_dim < turned:
        raise ConfigError(f"config.json: of index_head_dim {own.indexer.head_dim}, {turned} cannot be turned")
    return own


def _behind(f: Fields) -> tuple[str, ...]:
    """SGLang 0.5.12 counts them among the layers; of what it has no keys, it keeps a window alone."""
    told = f.get("compress_ratios")
    more = told[f.size("num_hidden_layers") :] if isinstance(told, list) else []
    return tuple(_BY_RATIO.get(one, "sliding") if type(one) is int else "sliding" for one in more)


def _streams(f: Fields) -> StreamsConfig:
    return StreamsConfig(f.size("hc_mult"), f.size("hc_sinkhorn_iters"), f.number("hc_eps"))


def _routed(f: Fields) -> MoEConfig:
    inner = f.size("moe_intermediate_size")
    return MoEConfig(
        num_experts=f.size("n_routed_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=inner,
        scoring="sqrtsoftplus",
        correction_bias=True,
        routed_scaling_factor=f.number("routed_scaling_factor"),
        hashed_layers=_hashed(f),
    )


def _hashed(f: Fields) -> int:
    """The first layers, whose experts are told by a token's number."""
    layers = f.size("num_hidden_layers")
    told = f.per_layer("mlp_layer_types", layers, {"hash_moe": "hashed", "moe": "scored"})
    if not f.has("num_hash_layers"):
        f.cannot("num_hash_layers is left out: SGLang then has none of those layers, transformers others")
        return min(_HASHED, layers) if told is None else told.count("hashed")
    count = min(f.count("num_hash_layers"), layers)
    if told not in (None, ["hashed"] * count + ["scored"] * (layers - count)):
        f.cannot("mlp_layer_types is not what num_hash_layers is: SGLang goes by the latter")
    return count


def _caps(f: Fields, layers: int) -> tuple[Caps, ...]:
    """Of routed and shared experts alike."""
    if not f.has("swiglu_limit"):
        f.cannot("swiglu_limit is left out: SGLang then has none, transformers 10")
    limit = f.positive("swiglu_limit", _LIMIT)
    return (Caps(limit, limit, before=True),) * layers


_DEFAULTS: dict[str, Any] = {
    "vocab_size": 129280,
    "hidden_size": 4096,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 43,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "head_dim": 512,
    "q_lora_rank": 1024,
    "num_experts_per_tok": 6,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
    "max_position_embeddings": 1048576,
    "sliding_window": 128,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "hc_mult": 4,
    "hc_sinkhorn_iters": 20,
    "hc_eps": 1e-6,
}

FAMILIES = (Family("deepseek_v4", _v4, _DEFAULTS),)
