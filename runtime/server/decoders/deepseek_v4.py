"""DeepSeek-V4: a window with compressed keys behind it, several residual streams, and experts that are chosen
by a token's number in the first layers. What it is made of is known, and nothing of it computed."""

from __future__ import annotations

from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, indexer, model
from runtime.server.errors import ConfigError, Unsupported
from runtime.server.layer_config import AttentionConfig, CompressedConfig, MoEConfig

_KINDS = {
    "sliding_attention": "sliding",
    "compressed_sparse_attention": "sparse",
    "heavily_compressed_attention": "heavy",
}
_BY_RATIO = {0: "sliding", 4: "sparse", 128: "heavy"}
_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def _v4(f: Fields) -> ModelConfig:
    f.cannot("model_type is 'deepseek_v4': this runtime has no layers with several residual streams")
    _only_v4s(f)
    kinds = _attention_kinds(f)
    parts = {"moe": _routed(f), "compressed": _compressed(f), "intermediate_size": 0}
    return model(f, dict.fromkeys(kinds, _attention(f)), kinds, everywhere(f, "moe"), **parts)


def _only_v4s(f: Fields) -> None:
    """What its classes do whatever these say, or know nothing else of."""
    for name in ("attention_bias", "mlp_bias"):
        f.only(name, False)
    for name in ("num_key_value_heads", "n_shared_experts"):
        f.only(name, 1)
    f.only("scoring_func", "sqrtsoftplus")
    f.only("topk_method", "noaux_tc")
    f.only("norm_topk_prob", True)


def _attention_kinds(f: Fields) -> list[str]:
    """Told layer by layer, in either spelling; else two that compress heavily, and then by turns."""
    layers = f.size("num_hidden_layers")
    told = f.per_layer("layer_types", layers, _KINDS)
    ratios = f.get("compress_ratios")
    if told is not None:
        return told
    if ratios is None:
        return [*["heavy"] * 2, *["heavy", "sparse"] * layers][:layers]
    if not isinstance(ratios, list) or len(ratios) < layers:
        raise ConfigError(
            f"config.json: compress_ratios is {repr(ratios)[:60]}: a list of {layers} is needed"
        )
    for ratio in ratios[:layers]:
        if type(ratio) is not int or ratio not in _BY_RATIO:
            raise Unsupported(f"config.json: compress_ratios has {repr(ratio)[:60]}: here are 0, 4 and 128")
    return [_BY_RATIO[ratio] for ratio in ratios[:layers]]


def _attention(f: Fields) -> AttentionConfig:
    heads, width = f.size("num_attention_heads"), f.size("head_dim")
    return AttentionConfig(heads, 1, width, None, width**-0.5, window=f.size("sliding_window"), sinks=True)


def _compressed(f: Fields) -> CompressedConfig:
    for name, rate in f.section("compress_rates").items():
        if rate != _RATES.get(name):
            f.cannot(f"compress_rates: {str(name)[:60]} is {repr(rate)[:60]}: SGLang has {_RATES}")
    return CompressedConfig(
        q_lora_rank=f.size("q_lora_rank"),
        output_groups=f.size("o_groups"),
        output_rank=f.size("o_lora_rank"),
        indexer=indexer(f, is_interleaved=True),
    )


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
    )


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
}

FAMILIES = (Family("deepseek_v4", _v4, _DEFAULTS),)
