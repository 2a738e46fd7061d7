"""Rotary position embedding: one table of cosines and sines a model, applied in place by one fused kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from runtime.server.config import ModelConfig
from runtime.server.errors import ConfigError


def rotary_dim(model: ModelConfig) -> int:
    if model.mla is not None:
        return model.mla.qk_rope_head_dim
    return int(model.head_dim * model.rope_parameters.get("partial_rotary_factor", 1.0))


def rope_table(model: ModelConfig, device: torch.device) -> torch.Tensor:
    """[max_position, rotary_dim] fp32: cosines, then sines."""
    dim = rotary_dim(model)
    frequencies, scale = _frequencies(model, dim, device)
    positions = torch.arange(model.max_position, dtype=torch.float32, device=device)
    angles = positions[:, None] * frequencies
    table = torch.empty(model.max_position, dim, dtype=torch.float32, device=device)
    torch.cos(angles, out=table[:, : dim // 2])
    torch.sin(angles, out=table[:, dim // 2 :])
    return table.mul_(scale)


def softmax_scale(model: ModelConfig) -> float:
    """1 / sqrt(head size), and what YaRN adds to it in latent attention."""
    head = model.mla.qk_head_dim if model.mla else model.head_dim
    rope = model.rope_parameters
    if model.mla and rope.get("rope_type", "default") != "default" and rope.get("mscale_all_dim"):
        return head**-0.5 * _mscale(rope["factor"], rope["mscale_all_dim"]) ** 2
    return head**-0.5


def _frequencies(model: ModelConfig, dim: int, device: torch.device) -> tuple[torch.Tensor, float]:
    rope = model.rope_parameters
    kind = rope.get("rope_type", "default")
    exponents = torch.arange(0, dim, 2, dtype=torch.float32, device=device) / dim
    plain = 1.0 / (model.rope_theta**exponents)
    if kind == "default":
        return plain, 1.0
    if kind == "llama3":
        return _llama3(plain, rope), 1.0
    if kind == "yarn":
        return _yarn(plain, rope, model.rope_theta, dim), _yarn_attention_factor(rope)
    raise ConfigError(f"rope_type {kind!r} is not supported: this runtime knows default, llama3 and yarn")


def _llama3(plain: torch.Tensor, rope: Mapping[str, Any]) -> torch.Tensor:
    """Long wavelengths are stretched by the factor, short ones kept, those between blended."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] / (2 * math.pi / plain)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    return plain / rope["factor"] * (1 - keep) + plain * keep


def _yarn(plain: torch.Tensor, rope: Mapping[str, Any], theta: float, dim: int) -> torch.Tensor:
    original = rope["original_max_position_embeddings"]

    def dimension_of(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension_of(rope.get("beta_fast") or 32)
    high = dimension_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    index = torch.arange(dim // 2, dtype=torch.float32, device=plain.device)
    stretch = ((index - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / rope["factor"] * stretch + plain * (1 - stretch)


def _yarn_attention_factor(rope: Mapping[str, Any]) -> float:
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])
    factor, over, under = rope["factor"], rope.get("mscale"), rope.get("mscale_all_dim")
    if over and under:
        return _mscale(factor, over) / _mscale(factor, under)
    return _mscale(factor, 1.0)


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


@torch.library.custom_op("sgl_tune::rope_", mutates_args=("q", "k"))
def rope_(
    q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool
) -> None:
    """Turn the first `rotary_dim` values of each head of q [T, heads, D] and k [T, kv heads, D], in place."""
    if q.is_cuda:
        from runtime.layers import kernels

        kernels.rope(q, table, positions, interleaved)
        kernels.rope(k, table, positions, interleaved)
    else:
        _rotate(q, table, positions, interleaved)
        _rotate(k, table, positions, interleaved)


@rope_.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool
) -> None:
    return None


def _rotate(x: torch.Tensor, table: torch.Tensor, positions: torch.Tensor, interleaved: bool) -> None:
    dim = table.shape[1]
    cos, sin = table[positions].to(x.dtype).unsqueeze(1).chunk(2, dim=-1)
    rotary = x[..., :dim]
    first, second = (rotary[..., 0::2], rotary[..., 1::2]) if interleaved else rotary.chunk(2, dim=-1)
    turned = first * cos - second * sin
    second.copy_(second * cos + first * sin)
    first.copy_(turned)
