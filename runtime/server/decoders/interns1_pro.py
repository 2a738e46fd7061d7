"""Intern-S1-Pro: Qwen3-VL's layers of experts, whose routers choose in each group of them, and a rope whose
cosines and sines each KV head mixes (srt/models/interns1pro.py).

Its config class is a file of its checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import replace

from runtime.server.config import ModelConfig
from runtime.server.decoders.family import Family
from runtime.server.decoders.fields import Fields
from runtime.server.decoders.parts import everywhere, heads, model, routed
from runtime.server.decoders.rope import read_rope
from runtime.server.layer_config import MoEConfig, RopeConfig

_MIXES = ("fope_init_factor", "fope_sep_head", "num_inv_freq")


def _interns1_pro_text(f: Fields) -> ModelConfig:
    f.only("decoder_sparse_step", 1)
    f.only("mlp_only_layers", [])
    f.only("dual_chunk_attention_config")
    bias = f.flag("attention_bias")
    plain = heads(f, rope=None, bias=bias, output_bias=bias, qk_norm="head")
    attention = replace(plain, rope=_rope(f, plain.head_dim))
    return model(f, {"full": attention}, everywhere(f, "full"), everywhere(f, "moe"), moe=_routed(f))


def _rope(f: Fields, width: int) -> RopeConfig:
    rope, told = read_rope(f, width, theta=5e6), f.section("rope_scaling")
    if f.has("rope_parameters"):
        f.cannot("rope_parameters: SGLang takes rope_theta beside rope_scaling, as checkpoints have them")
    if all(told.get(name) is None for name in _MIXES):
        return rope
    kind = rope.parameters["rope_type"]
    if kind != "default" or "mrope_section" in told:
        f.cannot(f"rope_scaling: {kind} with sections or factors: SGLang mixes nothing beside those")
    if told.get("fope_sep_head", True) is not True:
        f.cannot("rope_scaling: fope_sep_head is not true: SGLang has weights of each KV head alone")
    return replace(rope, mixed=_turns(f, rope, told.get("num_inv_freq")))


def _turns(f: Fields, rope: RopeConfig, told: object) -> int:
    """Frequencies that turn once or more within the longest context, or as many as are told."""
    pairs = rope.dim // 2
    if told is not None:
        return min(pairs, f.checked_size("rope_scaling: num_inv_freq", told))
    slowest = 2 * math.pi / rope.max_position
    found = sum(rope.theta ** (-2 * pair / rope.dim) > slowest for pair in range(pairs))
    if rope.theta <= 1 or not found:
        f.cannot(f"rope_theta is {rope.theta}: of its {pairs} frequencies SGLang finds none to mix")
    return max(1, found)


def _routed(f: Fields) -> MoEConfig:
    moe = routed(f, "moe_intermediate_size", renormalize=f.flag("norm_topk_prob"))
    groups = f.get("router_n_groups")
    if type(groups) is not int or groups < 1:
        f.only("router_n_groups", -1, 0)
        return moe
    groups = f.size("router_n_groups")
    if moe.top_k % groups:
        f.cannot(f"num_experts_per_tok is {moe.top_k}: SGLang takes as many of each of {groups} groups")
    return replace(moe, num_groups=groups, top_k_groups=groups, group_worth=1, from_each_group=True)


_CLASS = {
    "intermediate_size": 5632,
    "num_key_value_heads": 16,
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 4,
    "num_experts": 60,
    "norm_topk_prob": True,
}

FAMILIES = (Family("interns1_pro_text", _interns1_pro_text, _CLASS),)
