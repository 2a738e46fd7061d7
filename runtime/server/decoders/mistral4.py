"""Mistral Small 4 and Large 3: latents whose queries grow with their position, experts by a softmax.

SGLang has them as its reading of a params.json makes them, a DeepSeek-V3 of another architecture:
srt/models/mistral_large_3.py. `mistral4` is transformers' own, of which it has no class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.deepseek import V3
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields, checked_number
from runtime.server.decoders.parts import everywhere, latents, model, which
from runtime.server.decoders.rope import mscale, read_rope_alone
from runtime.server.errors import ConfigError
from runtime.server.layer_config import AttentionConfig, Growth, MLAConfig, MoEConfig, RopeConfig

LARGE = "mistral_large_3"
_GROWS, _LENGTH = "llama_4_scaling_beta", "original_max_position_embeddings"
_SHARE = "partial_rotary_factor"
_APPLIES = "apply_yarn_scaling"
_YARN = (
    *("rope_type", "type", "rope_theta", "factor", _LENGTH, "beta_fast", "beta_slow"),
    *("mscale", "mscale_all_dim", _APPLIES),
)


def _small(f: Fields) -> ModelConfig:
    told = f.section("rope_scaling") or f.section("rope_parameters")
    attention, mla = latents(
        f, f.get("rope_interleave") is None or f.flag("rope_interleave"), rope=_rope(f, told)
    )
    grows = _growth("rope_parameters", told.get(_GROWS), told.get(_LENGTH))
    return _model(f, replace(attention, growth=grows), mla, _experts(f, f.flag("norm_topk_prob")), 1)


def _rope(f: Fields, told: Mapping[str, Any]) -> RopeConfig:
    width, rotary = f.size("qk_nope_head_dim") + f.size("qk_rope_head_dim"), f.size("qk_rope_head_dim")
    share = checked_number(_SHARE, told.get(_SHARE, f.number(_SHARE, rotary / width)))
    if int(width * share) != rotary:
        f.cannot(f"{_SHARE} is {share}: of {width} it turns others than the {rotary} of qk_rope_head_dim")
    read = {
        name: value for name, value in told.items() if name not in (_GROWS, _SHARE, "max_position_embeddings")
    }
    read.setdefault("rope_theta", f.number("rope_theta", 10000.0))
    return read_rope_alone(f, read, rotary, 1.0)


def _large(f: Fields) -> ModelConfig:
    f.only("topk_method")
    for name, value in (("scoring_func", "softmax"), ("n_group", 1), ("topk_group", 1)):
        f.only(name, value)
    f.only("norm_topk_prob", True)
    if f.get("routing_method_type") != 1:
        f.cannot(
            "routing_method_type is not 1, by which SGLang tells kernels that Mistral's choose by a softmax"
        )
    told = f.section("rope_scaling") or f.section("rope_parameters")
    attention, mla = latents(
        f, f.get("rope_interleave") is None or f.flag("rope_interleave"), rope=_yarn(f, told)
    )
    grows, scale = f.section("llama_4_scaling"), mla.qk_head_dim**-0.5
    if told.get("factor") and told.get(_APPLIES, True):
        scale *= _stretch(told, "mscale_all_dim", 0) ** 2
    growth = _growth("llama_4_scaling", grows.get("beta"), grows.get(_LENGTH)) if grows else None
    every = f.size("moe_layer_freq", 1)
    found = _model(f, replace(attention, growth=growth, scale=scale), mla, _experts(f, True), every)
    return replace(found, model_type=LARGE)


def _yarn(f: Fields, told: Mapping[str, Any]) -> RopeConfig:
    """DeepSeek's, whatever it is called: srt/layers/rotary_embedding."""
    kind = told.get("rope_type") or told.get("type") or "default"
    unread = next((name for name in told if name not in _YARN), None)
    if unread is not None:
        f.cannot(f"rope_scaling has {unread[:60]!r}, which is not read")
    read = {name: value for name, value in told.items() if name in _YARN and name not in ("type", _APPLIES)}
    read.setdefault("rope_theta", f.number("rope_theta", 10000.0))
    if kind == "deepseek_yarn":
        read["attention_factor"] = _stretch(told, "mscale", 1) / _stretch(told, "mscale_all_dim", 0)
        kind = "yarn"
    elif kind != "default":
        f.cannot(f"rope_type is {repr(kind)[:60]}: this runtime computes deepseek_yarn")
    return read_rope_alone(f, {**read, "rope_type": kind}, f.size("qk_rope_head_dim"), 1.0)


def _stretch(told: Mapping[str, Any], name: str, otherwise: float) -> float:
    numbers = {one: told.get(one) for one in ("factor", name)}
    numbers[name] = otherwise if numbers[name] is None else numbers[name]
    factor, scale = (checked_number(f"rope_scaling: {one}", value) for one, value in numbers.items())
    return mscale(factor, scale)


def _growth(section: str, strength: Any, length: Any) -> Growth:
    grows = checked_number(f"{section}: growth", strength), checked_number(f"{section}: {_LENGTH}", length)
    if grows[1] <= 0:
        raise ConfigError(f"config.json: {section}: {_LENGTH} is {length}: it must be above 0")
    return Growth(float(grows[0]), float(grows[1]))


def _experts(f: Fields, renormalizes: bool) -> MoEConfig:
    """A group is worth its two best."""
    inner, experts = (
        f.size("moe_intermediate_size"),
        f.size(f.spelled("n_routed_experts", "num_local_experts")),
    )
    groups, best, top_k = f.size("n_group", 1), f.size("topk_group", 1), f.size("num_experts_per_tok")
    if groups > 1 and top_k > experts // groups * best:
        f.cannot(f"num_experts_per_tok is {top_k}: {best} of {groups} groups have fewer experts")
    return MoEConfig(
        num_experts=experts,
        top_k=top_k,
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("n_shared_experts"),
        renormalize=renormalizes,
        num_groups=groups,
        top_k_groups=best,
        routed_scaling_factor=f.number("routed_scaling_factor", 1.0),
    )


def _model(f: Fields, attention: AttentionConfig, mla: MLAConfig, moe: MoEConfig, every: int) -> ModelConfig:
    first = f.count("first_k_dense_replace")
    kinds = which(f.size("num_hidden_layers"), lambda layer: layer >= first and layer % every == 0)
    return model(f, {"full": attention}, everywhere(f, "full"), kinds, moe=moe, mla=mla)


_SMALL = {
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "kv_lora_rank": 256,
    "q_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "qk_nope_head_dim": 64,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "type": "yarn",
        "rope_theta": 10000.0,
        "factor": 128.0,
        _LENGTH: 8192,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale_all_dim": 1.0,
        "mscale": 1.0,
        _GROWS: 0.1,
    },
}

FAMILIES = (Family("mistral4", _small, _SMALL), Family(LARGE, _large, V3))
