"""Qwen4: gated delta nets; in every fourth layer gated attention, whose indexer chooses groups of tokens;
experts in all of them, residual streams behind gates, and n-grams in a few.

SGLang has a config class of its own for these files: what transformers' takes otherwise is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import check_both, everywhere, gated_delta, heads, model, routed
from runtime.server.decoders.qwen_hybrid import COMMON, EXPERTS
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, GatedStreamsConfig, IndexerConfig
from runtime.server.ngrams import NgramConfig
from runtime.server.recurrent import GatedDeltaConfig

NAME = "qwen4_exp_text"
_MIXERS = {"full_attention": "full", "indexed_attention": "full", "linear_attention": "recurrent"}
_INDEXER = ("n_heads", "kv_heads", "head_dim", "budget", "compress_ratio")
# What transformers takes where a file does not say, and SGLang otherwise: srt/configs/qwen3_next.py.
_TAKEN: Mapping[str, Any] = {"vocab_size": 248320, "num_hidden_layers": 40}
_SHARE = "partial_rotary_factor"


def _qwen4(f: Fields) -> ModelConfig:
    for name in _TAKEN:
        if not f.tells(name):
            f.cannot(f"{name} is missing: SGLang and transformers take two other values")
    kinds = _kinds(f)
    moe = routed(
        f,
        "moe_intermediate_size",
        renormalize=f.flag("norm_topk_prob"),
        shared_intermediate_size=f.size("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return model(
        f,
        {"full": _attention(f)},
        kinds,
        everywhere(f, "moe"),
        moe=moe,
        recurrent=_delta(f),
        streams=GatedStreamsConfig(_streams(f), f.size("hc_lowrank")),
        ngrams=_ngrams(f, kinds),
        norms="none",
        centred_norms=True,
    )


def _kinds(f: Fields) -> list[str]:
    layers, every = f.size("num_hidden_layers"), f.size("full_attention_interval", 4)
    told = f.per_layer("layer_types", layers, _MIXERS)
    if told is None and not f.tells("full_attention_interval"):
        f.cannot("layer_types and full_attention_interval are missing: SGLang asks for either")
    kinds = told or ["recurrent" if (i + 1) % every else "full" for i in range(layers)]
    check_both(f, kinds)
    return kinds


def _attention(f: Fields) -> AttentionConfig:
    told = f.section("rope_parameters")
    if _SHARE not in told and not f.tells(_SHARE):
        f.cannot(f"{_SHARE} is missing: SGLang and transformers take two other values")
    f.only("attention_bias", False)
    shared = heads(f, share=1.0, qk_norm="head", output_gate=True, pools=_pools(f))
    if shared.rope is not None and shared.pools is not None and shared.rope.dim > shared.pools.head_dim:
        raise ConfigError(
            f"config.json: indexer_head_dim is {shared.pools.head_dim}: {shared.rope.dim} values are turned"
        )
    return shared


def _pools(f: Fields) -> IndexerConfig | None:
    names = [f"indexer_{name}" for name in _INDEXER]
    missing = [name for name in names if not f.has(name)]
    if missing:
        f.cannot(f"{missing[0]} is missing: transformers has no layers of this family without an indexer")
        return None
    f.only("indexer_kv_heads", 1)
    count, _, width, budget, pool = map(f.size, names)
    if budget % pool:
        raise ConfigError(f"config.json: indexer_budget {budget} is not whole groups of {pool} tokens")
    return IndexerConfig(count, width, budget, pool=pool)


def _delta(f: Fields) -> GatedDeltaConfig:
    gate = f.get("output_gate_type") or f.get("hidden_act")
    if gate not in ("silu", "sigmoid"):
        f.cannot(f"output_gate_type is {repr(gate)[:60]}: this runtime computes 'silu' or 'sigmoid'")
    return gated_delta(
        f,
        projections="matrices",
        plain_gate=gate == "sigmoid",
    )


def _streams(f: Fields) -> int:
    count = f.size("hc_count")
    if count == 1:
        raise ConfigError("config.json: hc_count is 1: this family has several residual streams")
    return count


def _ngrams(f: Fields, kinds: list[str]) -> NgramConfig | None:
    told, end = sorted(f.layer_numbers("ple_layer_ids")), f.get("eos_token_id")
    if type(end) is not int:
        f.cannot(f"eos_token_id is {repr(end)[:60]}: SGLang's class takes one whole number")
        end = 0
    sizes = {own: f.size(name) for own, name in _NGRAMS.items()}
    width, seed = f.size("ple_embed_dim", f.size("hidden_size")), f.count("seed")
    if not told:
        return None
    if not 1 <= told[0] <= told[-1] <= len(kinds):
        here = f"here are layers 1 to {len(kinds)}"
        raise ConfigError(f"config.json: ple_layer_ids is {repr(told)[:60]}: {here}")
    if any(kinds[number - 1] != "recurrent" for number in told):
        f.cannot("ple_layer_ids has layers with attention: transformers has n-grams in others alone")
    layers = tuple(number - 1 for number in told)
    return NgramConfig(layers, width=width, seed=seed, vocab_size=f.size("vocab_size"), end=end, **sizes)


_NGRAMS: Mapping[str, str] = {
    "longest": "ngram_size",
    "heads": "heads_per_ngram",
    "least_rows": "ngram_vocab_size_base",
    "divisor": "make_ngram_vocab_size_divisible_by",
    "taps": "ple_conv_kernel_size",
    "parts": "split_ngram_parts",
}
_AGREED: Mapping[str, Any] = {
    "hidden_size": 2048,
    **COMMON,
    **EXPERTS,
    "num_experts_per_tok": 10,
    "num_experts": 512,
    "norm_topk_prob": True,
    "hidden_act": "silu",
    "hc_count": 4,
    "hc_lowrank": 320,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 8,
    "ngram_vocab_size_base": 20_000_000,
    "make_ngram_vocab_size_divisible_by": 128,
    "seed": 1234,
    "split_ngram_parts": 512,
}

FAMILIES = (Family(NAME, _qwen4, {**_AGREED, **_TAKEN}),)
