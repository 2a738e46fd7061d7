"""Kimi-Linear: delta attention in most layers, latents that nothing turns in some, experts after a few dense.

SGLang has a config class of its own for these files: what transformers' takes otherwise is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import HF, Fields
from runtime.server.decoders.parts import MLPS, as_counted, check_both, model, which
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, MLAConfig, MoEConfig
from runtime.server.recurrent import KimiDeltaConfig
from runtime.server.tensor_names import ServedNames, TensorNames

_MIXERS = {"linear_attention": "recurrent", "full_attention": "full"}
_DELTAS, _FULL = "kda_layers", "full_attn_layers"
# What transformers takes where a file does not say, and SGLang otherwise: srt/configs/kimi_linear.py.
_TAKEN: Mapping[str, Any] = {
    "intermediate_size": 9216,
    "moe_intermediate_size": 1024,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 1,
    "routed_scaling_factor": 2.446,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "rms_norm_eps": 1e-5,
    "model_max_length": 1048576,
    "first_k_dense_replace": 1,
}
# Another spelling of transformers', which SGLang does not read.
_SPELLED_APART = {
    "n_group": "num_expert_group",
    "norm_topk_prob": "moe_renormalize",
    "num_local_experts": "num_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
    "max_position_embeddings": "model_max_length",
}
# Of Kimi K3, which has a class of its own.
_OF_OTHERS = (
    *("attn_res_block_size", "routed_expert_hidden_size", "activation_situ_beta"),
    *("activation_situ_linear_beta", "mamba_ssm_dtype", "q_lora_rank"),
)
# kimi_linear.py gives shared experts no name, and takes kv_b_proj for a plain matrix.
_SERVED = ServedNames(
    ((r".*\.shared_experts\.", ""),),
    files=((r"\.mlp\.(shared_)?experts", r".block_sparse_moe.\1experts"),),
    plain_in_file=("kv_b_proj",),
    experts=("experts.0.w1", "experts.0.w2", "experts.0.w3"),
)


def _kimi_linear(f: Fields) -> ModelConfig:
    _check(f)
    linear = f.section("linear_attn_config")
    layers = f.size("num_hidden_layers")
    mixers = kinds_of_layers(f, linear, layers)
    attention, mla = _latents(f)
    return model(
        f,
        {"full": attention},
        mixers,
        _mlps(f, layers),
        moe=_routed(f),
        mla=mla,
        recurrent=KimiDeltaConfig(*delta_sizes(f, linear)) if "recurrent" in mixers else None,
        names=TensorNames(recurrent="self_attn", served=_SERVED),
        max_position=f.size("model_max_length", _TAKEN["model_max_length"]),
        intermediate_size=f.size("intermediate_size", _TAKEN["intermediate_size"]),
        rms_eps=f.number("rms_norm_eps", _TAKEN["rms_norm_eps"]),
    )


def _check(f: Fields) -> None:
    f.only("hidden_act", "silu")
    f.only("moe_router_activation_func", "sigmoid")
    f.only("topk_method", "noaux_tc")
    f.only("logit_scale", 1.0)
    for name in ("use_grouped_topk", "mla_use_nope"):
        f.only(name, True)
    for name in ("tie_word_embeddings", "attention_bias", "latent_moe_use_norm", "mla_use_output_gate"):
        f.only(name, False)
    for name in _OF_OTHERS:
        f.only(name)
    for theirs, read in _SPELLED_APART.items():
        if f.has(theirs) and f.get(theirs) != f.get(read):
            f.cannot(f"{theirs} is {repr(f.get(theirs))[:60]}: SGLang reads {read}")
    for name in _TAKEN:
        if not f.has(name):
            f.cannot(f"{name} is missing: SGLang and transformers take two other values")


def kinds_of_layers(f: Fields, linear: HF, layers: int) -> list[str]:
    mixers = _mixers(f, linear, layers)
    check_both(f, mixers)
    return mixers


def _mixers(f: Fields, linear: HF, layers: int) -> list[str]:
    told, deltas, full = f.per_layer("layer_types", layers, _MIXERS), _numbers(linear, _DELTAS), None
    if deltas is not None:
        full = _numbers(linear, _FULL)
    if deltas is None or full is None:
        f.cannot(f"linear_attn_config has no {_FULL if deltas is not None else _DELTAS}: SGLang reads those")
        return told or ["full" if i and i % 4 == 0 else "recurrent" for i in range(layers)]
    if deltas & full or deltas | full != {*range(1, layers + 1)}:
        f.cannot(f"linear_attn_config: {_DELTAS} and {_FULL} are not each of the layers 1 to {layers} once")
    kinds = ["recurrent" if i + 1 in deltas else "full" for i in range(layers)]
    if told is not None and told != kinds:
        f.cannot(f"layer_types are not those of linear_attn_config's {_DELTAS}: SGLang reads those")
    return kinds


def _numbers(linear: HF, name: str) -> frozenset[int] | None:
    listed = linear.get(name)
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(type(one) is int for one in listed):
        raise ConfigError(
            f"config.json: linear_attn_config: {name} is {repr(listed)[:60]}: layers are needed"
        )
    return frozenset(listed)


def _mlps(f: Fields, layers: int) -> list[str]:
    first = _TAKEN["first_k_dense_replace"]
    if f.has("first_k_dense_replace"):
        first = f.count("first_k_dense_replace")
    f.only("moe_layer_freq", 1)
    kinds = which(layers, lambda i: i >= first)
    return as_counted(f, "mlp_layer_types", MLPS, kinds, f"first_k_dense_replace {first}")


def _latents(f: Fields) -> tuple[AttentionConfig, MLAConfig]:
    names = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    mla = MLAConfig(q_lora_rank=None, indexer=None, **{name: f.size(name, _TAKEN[name]) for name in names})
    count = f.size("num_attention_heads")
    return AttentionConfig(count, count, mla.qk_head_dim, None, mla.qk_head_dim**-0.5), mla


def delta_sizes(f: Fields, linear: HF) -> tuple[int, int, int]:
    """Heads, their width and what a convolution sees, of the section; where it has none, of the file, and
    SGLang's server ends."""
    sizes: list[int] = []
    for name, otherwise, usual in (
        ("num_heads", "linear_num_heads", 32),
        ("head_dim", "linear_head_dim", 128),
        ("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
    ):
        f.get(otherwise)
        if linear.get(name) is None:
            f.cannot(f"linear_attn_config has no {name}: SGLang reads it there")
            sizes.append(f.size(otherwise, usual))
        else:
            sizes.append(Fields(linear, {}).size(name))
    heads, width, taps = sizes
    return heads, width, taps


def _routed(f: Fields) -> MoEConfig:
    inner = f.size("moe_intermediate_size", _TAKEN["moe_intermediate_size"])
    return MoEConfig(
        num_experts=f.size("num_experts", _TAKEN["num_experts"]),
        top_k=f.size("num_experts_per_token", _TAKEN["num_experts_per_token"]),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.size("num_shared_experts", _TAKEN["num_shared_experts"]),
        scoring="sigmoid",
        renormalize=f.flag("moe_renormalize"),
        correction_bias=True,
        correction_in_fp32=False,
        num_groups=f.size("num_expert_group", 1),
        top_k_groups=f.size("topk_group", 1),
        routed_scaling_factor=f.number("routed_scaling_factor", _TAKEN["routed_scaling_factor"]),
    )


_AGREED = {"vocab_size": 163840, "num_attention_heads": 32, "moe_renormalize": True}

FAMILIES = (
    Family("kimi_linear", _kimi_linear, _AGREED, by_architecture={"KimiK3LinearForCausalLM": "kimi_k3_text"}),
)
