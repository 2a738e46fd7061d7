"""MiniMax-M3: heads that see blocks of tokens which an indexer chooses, and experts, behind dense layers.

SGLang takes the section of its text as it stands, where transformers has a class with values for what is left
out, and has no tied head: what the two take otherwise is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.declared import packs_experts
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.parts import MLPS, model
from runtime.server.decoders.rope import read_rope
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, BlockConfig, MoEConfig

_MIXERS = {"full_attention": "full", "minimax_m3_sparse": "sparse"}
_SECTION = "sparse_attention_config"
# What transformers takes where a file does not say.
_TAKEN: Mapping[str, Any] = {
    "vocab_size": 200064,
    "hidden_size": 6144,
    "intermediate_size": 3072,
    "dense_intermediate_size": 12288,
    "shared_intermediate_size": 3072,
    "num_hidden_layers": 60,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 524288,
    "rms_norm_eps": 1e-6,
    "num_experts_per_tok": 4,
    "num_local_experts": 128,
    "routed_scaling_factor": 2.0,
    "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0,
}
# What transformers does whatever a file says, and SGLang where this does.
_SAID: Mapping[str, Any] = {
    "use_gemma_norm": True,
    "qk_norm_type": "per_head",
    "scoring_func": "sigmoid",
    "use_routing_bias": True,
    "n_shared_experts": 1,
}
_THETA = 5e6
_LISTS = ("ignored_layers", "modules_to_not_convert")
_NEVER_QUANTIZED = ("gate", "e_score_correction_bias")
# Of the section, and what transformers calls it beside its others.
_BLOCKS: Mapping[str, tuple[str, int]] = {
    "sparse_num_index_heads": ("index_n_heads", 4),
    "sparse_index_dim": ("index_head_dim", 128),
    "sparse_block_size": ("index_block_size", 128),
    "sparse_topk_blocks": ("index_topk_blocks", 16),
    "sparse_local_block": ("index_local_blocks", 1),
}


def _m3(f: Fields) -> ModelConfig:
    _check(f)
    layers, sparse = f.size("num_hidden_layers"), f.section(_SECTION)
    mixers, mlps = _mixers(f, sparse, layers), _mlps(f, layers)
    plain = _attention(f)
    kinds = {"full": plain, "sparse": _blockwise(f, plain, sparse, mixers)}
    return model(
        f,
        {kind: kinds[kind] for kind in dict.fromkeys(mixers)},
        mixers,
        mlps,
        moe=_routed(f),
        intermediate_size=f.size("dense_intermediate_size"),
        centred_norms=True,
        activation="clamped",
        swiglu=(f.number("swiglu_alpha"), f.number("swiglu_limit")),
    )


def _check(f: Fields) -> None:
    f.only("hidden_act", "swigluoai")
    f.only("swiglu_beta", 1.0)
    f.only("use_qk_norm", True)
    for name in ("attention_output_gate", "tie_word_embeddings"):
        f.only(name, False)
    for name in _TAKEN:
        if not f.tells(name):
            f.cannot(f"{name} is missing: transformers has a value of its own for it, SGLang none")
    f.always(_SAID)
    _check_quantization(f)
    f.positive("swiglu_limit")


def _check_quantization(f: Fields) -> None:
    section = f.section("quantization_config")
    if not section:
        return
    if section.get("quant_method") != "mxfp8":
        f.cannot(f"quant_method is {repr(section.get('quant_method'))[:60]}: this runtime knows 'mxfp8'")
    for name in ("moe_quant_algo", "moe_quant_format"):
        if section.get(name) is not None and not packs_experts(section):
            f.cannot(f"{name} is {repr(section[name])[:60]}: this runtime has no experts of another format")
    for name in _LISTS:
        told = section.get(name)
        for one in told if isinstance(told, list) else ():
            if "block_sparse_moe" in str(one) and str(one).rpartition(".")[2] not in _NEVER_QUANTIZED:
                f.cannot(f"{name} has {str(one)[:60]!r}: releases differ in whether that is one of their mlp")


def _attention(f: Fields) -> AttentionConfig:
    count, kv_count = f.size("num_attention_heads"), f.size("num_key_value_heads")
    width = f.size("head_dim")
    if count % kv_count:
        raise ConfigError(f"config.json: {count} heads cannot be divided among {kv_count} KV heads")
    told = f.section("rope_scaling") or f.section("rope_parameters")
    if not f.tells("rope_theta") and told.get("rope_theta") is None:
        f.cannot("rope_theta is missing: transformers has a value of its own for it, SGLang none")
    rope = read_rope(f, width, theta=_THETA, share=1.0)
    turned = f.size("rotary_dim", width)
    if turned != rope.dim:
        f.cannot(
            f"rotary_dim is {turned}, and of head_dim {width} partial_rotary_factor makes {rope.dim}: "
            "SGLang turns the former, transformers the latter"
        )
    return AttentionConfig(count, kv_count, width, rope, width**-0.5, qk_norm="head")


def _blockwise(f: Fields, plain: AttentionConfig, sparse: HF, mixers: list[str]) -> AttentionConfig:
    blocks = _blocks(f, sparse)
    if blocks.num_heads != plain.num_kv_heads:
        f.cannot(
            f"sparse_num_index_heads is {blocks.num_heads}, num_key_value_heads {plain.num_kv_heads}: "
            "this runtime has an indexer's head for each of them"
        )
    if blocks.head_dim != plain.head_dim:
        f.cannot(
            f"sparse_index_dim is {blocks.head_dim}, head_dim {plain.head_dim}: "
            "SGLang turns both by the same, and takes them as one width"
        )
    if blocks.local_blocks > blocks.top_k:
        f.cannot(f"sparse_local_block is {blocks.local_blocks}, more than the {blocks.top_k} that are chosen")
    disabled = _flags(sparse, "sparse_disable_index_value")
    with_values = [layer for layer, kind in enumerate(mixers) if kind == "sparse" and layer not in disabled]
    if with_values:
        f.cannot(f"sparse_disable_index_value: layer {with_values[0]} has values in its indexer")
    return replace(plain, blocks=blocks)


def _blocks(f: Fields, sparse: HF) -> BlockConfig:
    """Of the section; what it leaves out, of the file, and SGLang's server ends."""
    section = Fields(sparse, {})
    for name, served in (
        ("use_sparse_attention", True),
        ("sparse_score_type", "max"),
        ("sparse_init_block", 0),
        ("sparse_init_tokens", 0),
    ):
        section.only(name, served)
    f.obstacles.extend(section.obstacles)
    if section.get("sparse_init_block") is None and section.get("sparse_init_tokens") is None:
        f.cannot(f"{_SECTION} has no sparse_init_block: SGLang reads it there")
    found = []
    for name, (flat, usual) in _BLOCKS.items():
        beside = f.count(flat, usual) if flat == "index_local_blocks" else f.size(flat, usual)
        if section.get(name) is None:
            f.cannot(f"{_SECTION} has no {name}: SGLang reads it there")
        found.append(
            section.count(name, beside) if name == "sparse_local_block" else section.size(name, beside)
        )
    return BlockConfig(*found)


def _flags(section: HF, name: str) -> set[int]:
    """Of which layers a list says yes."""
    listed = section.get(name) or []
    if not isinstance(listed, list) or not all(isinstance(one, int) for one in listed):
        raise ConfigError(f"config.json: {name} is {repr(listed)[:60]}: a list of 0 and 1 is needed")
    return {layer for layer, one in enumerate(listed) if one}


def _listed(f: Fields, section: HF, name: str, layers: int, kinds: tuple[str, str]) -> list[str] | None:
    """One of two kinds a layer, by a list of 0 and 1."""
    if section.get(name) is None:
        f.cannot(f"{name} is missing: SGLang reads it, and no other list")
        return None
    yes = _flags(section, name)
    if len(section[name]) < layers:
        raise ConfigError(f"config.json: {name} is {repr(section[name])[:60]}: {layers} are needed")
    return [kinds[layer in yes] for layer in range(layers)]


def _mixers(f: Fields, sparse: HF, layers: int) -> list[str]:
    told = f.per_layer("layer_types", layers, _MIXERS)
    listed = _listed(f, sparse, "sparse_attention_freq", layers, ("full", "sparse"))
    if told is not None and listed is not None and told != listed:
        f.cannot("layer_types are not those of sparse_attention_freq: SGLang reads that")
    return told or listed or ["full"] * layers


def _mlps(f: Fields, layers: int) -> list[str]:
    told = f.per_layer("mlp_layer_types", layers, MLPS)
    beside = {"moe_layer_freq": f.get("moe_layer_freq")}
    listed = _listed(f, beside, "moe_layer_freq", layers, ("dense", "moe"))
    if told is not None and listed is not None and told != listed:
        f.cannot("mlp_layer_types are not those of moe_layer_freq: SGLang reads that")
    return told or listed or ["moe"] * layers


def _routed(f: Fields) -> MoEConfig:
    inner, shared = f.size("intermediate_size"), f.size("shared_intermediate_size")
    if shared != inner:
        f.cannot(
            f"shared_intermediate_size is {shared}, intermediate_size {inner}: SGLang has the latter for both"
        )
    return MoEConfig(
        num_experts=f.size("num_local_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=shared,
        scoring="sigmoid",
        correction_bias=True,
        routed_scaling_factor=f.number("routed_scaling_factor"),
        swiglu_alpha=f.number("swiglu_alpha"),
        swiglu_limit=f.number("swiglu_limit"),
    )


FAMILIES = (Family("minimax_m3_vl_text", _m3, {**_TAKEN, "hidden_act": "silu"}),)
