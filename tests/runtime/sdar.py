"""SDAR by transformers' Qwen3, dense and of experts: one token after another, as it has no blocks."""

from __future__ import annotations

from tests.runtime.told import Told, shared


def sdar(told: Told) -> Told:
    rope = {"rope_type": "default", **(told.get("rope_scaling") or {})}
    return {
        **shared(told),
        "head_dim": told["head_dim"],
        "attention_bias": told.get("attention_bias", False),
        "rope_parameters": {"rope_theta": told["rope_theta"], **rope},
    }


def sdar_moe(told: Told) -> Told:
    same = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
    return {**sdar(told), **{one: told[one] for one in same}}
