"""Sarvam 105B: DeepSeek-V3's layers, whose queries are not compressed, as srt/models/sarvam_moe.py has them.

Its config class is a file of its checkpoints, which nobody here has read: what a file leaves out is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import dense_first, everywhere, latents, model
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import MoEConfig, RopeConfig

_TOLD = {
    "intermediate_size": 16384,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
}
_STRETCHED = "deepseek_yarn"
_NAMES = ("type", "rope_type")


def _sarvam_mla(f: Fields) -> ModelConfig:
    for name in _TOLD:
        if not f.tells(name):
            f.cannot(f"{name} is missing: what it is then, the checkpoint's own class says")
    f.only("q_lora_rank")
    f.only("attention_bias", False)
    f.only("moe_layer_freq", 1)
    f.only("tie_word_embeddings", False)
    attention, mla = latents(f, rope=_rope(f))
    return model(
        f,
        {"full": attention},
        everywhere(f, "full"),
        dense_first(f),
        moe=_routed(f),
        mla=replace(mla, norm_eps=f.number("rms_norm_eps")),
        tie_word_embeddings=False,
        whole_embedding=True,
    )


def _rope(f: Fields) -> RopeConfig:
    """SGLang reads what it is by both names, one after the other."""
    told = f.section("rope_scaling") or f.section("rope_parameters")
    kinds = {told[name] for name in _NAMES if told.get(name) is not None}
    if kinds == {_STRETCHED}:
        _check_stretched(f, told)
    elif kinds != {"default"}:
        f.cannot(f"rope_scaling is of {sorted(map(str, kinds))}: this runtime reads default and {_STRETCHED}")
    if told.get("rope_theta") is None and not f.tells("rope_theta"):
        f.cannot("rope_theta is missing: what it is then, the checkpoint's own class says")
    kind = "yarn" if kinds == {_STRETCHED} else "default"
    plain = {**{name: value for name, value in told.items() if name not in _NAMES}, "rope_type": kind}
    known = {name: f.get(name) for name in ("max_position_embeddings", "rope_theta") if f.has(name)}
    reading = Fields({**known, "rope_parameters": plain}, {})
    rope = read_rope(reading, f.size("qk_rope_head_dim"))
    f.obstacles.extend(reading.obstacles)
    return rope


def _check_stretched(f: Fields, told: Mapping[str, Any]) -> None:
    if told.get("type") is None:
        f.cannot("rope_scaling has no type, which SGLang reads beside rope_type")
    for name in ("mscale", "mscale_all_dim"):
        if told.get(name) is None:
            f.cannot(f"rope_scaling has no {name}: SGLang takes two things for it")


def _routed(f: Fields) -> MoEConfig:
    """Shares are made one, whatever norm_topk_prob says."""
    f.only("score_function", "sigmoid")
    f.only("norm_topk_prob", True)
    f.only("router_dtype", "fp32")
    f.only("moe_router_enable_expert_bias", True)
    inner = f.size("moe_intermediate_size")
    return MoEConfig(
        num_experts=f.size("num_experts"),
        top_k=f.size("num_experts_per_tok"),
        intermediate_size=inner,
        shared_intermediate_size=inner * f.count("num_shared_experts"),
        scoring="sigmoid",
        correction_bias=True,
        num_groups=f.size("n_group", 1),
        top_k_groups=f.size("topk_group", 1),
        routed_scaling_factor=f.number("routed_scaling_factor"),
        routes_in_fp32=True,
    )


FAMILIES = (Family("sarvam_mla", _sarvam_mla, _TOLD),)
