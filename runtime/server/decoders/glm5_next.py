"""GLM-5.3 Flash: delta attention in most layers, latents that nothing turns in every fourth, an indexer that
chooses pools of tokens, several residual streams, and experts after a few dense layers.

SGLang has a config class of its own for these files: what transformers' takes otherwise is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields, checked_number
from runtime.server.decoders.glm import note_shared_indexers
from runtime.server.decoders.parts import MLPS, check_both, model, routed_by_sigmoid, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Caps, IndexerConfig, MLAConfig, StreamsConfig
from runtime.server.recurrent import KimiDeltaConfig
from runtime.server.tensor_names import TensorNames

NAME = "glm5_next_text"
_MIXERS = {"linear_attention": "recurrent", "indexed_attention": "full", "full_attention": "full"}
# Of no other value are SGLang's layers those of transformers.
_ALONE: Mapping[str, Any] = {
    **dict.fromkeys(("tie_word_embeddings", "attention_bias"), False),
    "index_kpool_always_select_tail": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "moe_layer_freq": 1,
}
# What transformers takes where a file does not say, and SGLang otherwise: srt/configs/glm5_next.py.
_TAKEN: Mapping[str, Any] = {
    "max_position_embeddings": 1048576,
    "swiglu_limit": 10.0,
    "index_topk": 2048,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_kpool": 16,
    "index_kpool_always_select_tail": True,
}
# What transformers' layers always have, and SGLang's where a file says so.
_SAID = ("mhc", "index_kpool_compress")
_SECTION = "linear_attn_config"
_BOUND = "linear_lower_bound"


def _glm5_next(f: Fields) -> ModelConfig:
    _check(f)
    layers = f.size("num_hidden_layers")
    kinds, mlps = _kinds(f, layers), _mlps(f, layers)
    attention, mla = _latents(f)
    return model(
        f,
        {"full": attention},
        kinds,
        mlps,
        moe=routed_by_sigmoid(f),
        mla=mla,
        streams=_streams(f),
        recurrent=_delta(f),
        caps=(_caps(f),) * layers,
        names=TensorNames(recurrent="self_attn"),
    )


def _check(f: Fields) -> None:
    for name, value in _ALONE.items():
        f.only(name, value)
    for name in _TAKEN:
        if not f.tells(name):
            f.cannot(f"{name} is missing: SGLang and transformers take two other values")
    f.always(dict.fromkeys(_SAID, True))
    experts = "num_local_experts"
    if f.has(experts) and f.get(experts) != f.get("n_routed_experts"):
        f.cannot(f"{experts} is {repr(f.get(experts))[:60]}: SGLang reads n_routed_experts")
    f.only("num_key_value_heads", f.size("num_attention_heads"))
    note_shared_indexers(f)


def _kinds(f: Fields, layers: int) -> list[str]:
    told, section = f.per_layer("layer_types", layers, _MIXERS), f.section(_SECTION)
    kinds = told or ["full" if layer % 4 == 3 else "recurrent" for layer in range(layers)]
    if section:
        deltas = {layer for layer, kind in enumerate(kinds) if kind == "recurrent"}
        listed = section.get("kda_layers")
        if not isinstance(listed, list) or {*map(str, listed)} != {*map(str, deltas)}:
            f.cannot(f"{_SECTION}: kda_layers are not those of layer_types: SGLang goes by the former")
    check_both(f, kinds)
    return kinds


def _mlps(f: Fields, layers: int) -> list[str]:
    first = f.count("first_k_dense_replace")
    kinds, told = which(layers, lambda i: i >= first), f.per_layer("mlp_layer_types", layers, MLPS)
    usual = which(layers, lambda i: i >= _FIRST)
    if (told or usual) != kinds:
        f.cannot("mlp_layer_types are not those of first_k_dense_replace: SGLang reads that")
    return told or usual


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim")
    if f.get("qk_rope_head_dim") != 0:
        raise ConfigError(
            f"config.json: qk_rope_head_dim is {repr(f.get('qk_rope_head_dim'))[:60]}: here nothing is turned"
        )
    mla = MLAConfig(
        qk_rope_head_dim=0,
        indexer=_indexer(f),
        norm_eps=f.number("rms_norm_eps"),
        **{name: f.size(name) for name in names},
    )
    count = f.size("num_attention_heads")
    return AttentionConfig(count, count, mla.qk_head_dim, None, mla.qk_head_dim**-0.5), mla


def _indexer(f: Fields) -> IndexerConfig:
    heads, width = f.size("index_n_heads"), f.size("index_head_dim")
    top_k, pool = f.size("index_topk"), f.size("index_kpool")
    if top_k % pool:
        raise ConfigError(f"config.json: index_topk {top_k} are not whole pools of index_kpool {pool}")
    if pool == 1:
        f.cannot("index_kpool is 1: SGLang's indexer then turns its keys, and transformers' does not")
    return IndexerConfig(heads, width, top_k, pool=pool)


def _streams(f: Fields) -> StreamsConfig:
    sizes = f.size("hc_mult"), f.size("hc_sinkhorn_iters")
    return StreamsConfig(*sizes, f.number("hc_eps"), weighs_last=False)


def _delta(f: Fields) -> KimiDeltaConfig:
    """Sizes of the section, where there is one."""
    own = f.section(_SECTION)
    names = {
        "linear_num_heads": "num_heads",
        "linear_head_dim": "head_dim",
        "linear_conv_kernel_dim": "short_conv_kernel_size",
    }
    sizes = [f.size(name) for name in names]
    if own:
        sizes = [Fields(own, {}).size(name) for name in names.values()]
    heads, width, taps = sizes
    return KimiDeltaConfig(heads, width, taps, lower_bound=_bound(f, own))


def _bound(f: Fields, section: HF) -> float | None:
    told, other = f.get(_BOUND), f.get("gate_lower_bound")
    if section:
        told = section.get("gate_lower_bound")
        if told is None:
            f.cannot(f"{_SECTION} has no gate_lower_bound: SGLang then has none, transformers -5.0")
            told = -5.0
    elif told is not None and not f.tells(_BOUND):
        f.cannot(f"{_BOUND} is missing: SGLang then has none, transformers {told}")
    elif other is not None and other != told:
        f.cannot(f"gate_lower_bound is {repr(other)[:60]}, {_BOUND} {told}: SGLang reads the former")
    if told is None:
        return None
    bound = checked_number(_BOUND, told)
    if not bound < 0:
        raise ConfigError(f"config.json: {_BOUND} is {bound}: a number below 0 is needed")
    return bound


def _caps(f: Fields) -> Caps:
    limit = f.positive("swiglu_limit")
    return Caps(limit, limit, before=True)


_FIRST = 3
_AGREED: Mapping[str, Any] = {
    "vocab_size": 154880,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 45,
    "num_attention_heads": 64,
    "n_shared_experts": 1,
    "n_routed_experts": 288,
    "routed_scaling_factor": 2.5,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 0,
    "v_head_dim": 256,
    "qk_nope_head_dim": 256,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "first_k_dense_replace": _FIRST,
    "rms_norm_eps": 1e-5,
    "linear_head_dim": 128,
    "linear_num_heads": 64,
    "linear_conv_kernel_dim": 4,
    "linear_lower_bound": -5.0,
    "hc_mult": 4,
    "hc_eps": 1e-6,
    "hc_sinkhorn_iters": 20,
}

FAMILIES = (Family(NAME, _glm5_next, {**_AGREED, **_TAKEN}),)
