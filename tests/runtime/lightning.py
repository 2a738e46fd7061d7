"""Lightning attention as SGLang's layer and kernel have it, written as the sum over all earlier tokens.

srt/models/bailing_moe_linear.py, srt/layers/attention/linear/lightning_backend.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Lightning(nn.Module):
    """In the place of a layer's attention: whole texts alone, and nothing is kept of them."""

    def __init__(self, told: dict[str, Any], layer: int) -> None:
        super().__init__()
        self.heads, hidden = told["num_attention_heads"], told["hidden_size"]
        self.width = told.get("head_dim") or hidden // self.heads
        self.groups, self.eps = told["group_norm_size"], told["rms_norm_eps"]
        self.turned = told.get("rotary_dim") or int(self.width * told["partial_rotary_factor"])
        self.theta, inner = told["rope_theta"], self.heads * self.width
        self.query_key_value = nn.Linear(hidden, 3 * inner, bias=False)
        self.g_proj, self.dense = nn.Linear(hidden, inner, bias=False), nn.Linear(inner, hidden, bias=False)
        self.g_norm = nn.RMSNorm(inner)
        if told.get("use_qk_norm", True):
            self.query_layernorm, self.key_layernorm = nn.RMSNorm(self.width), nn.RMSNorm(self.width)
        depth = 1 - layer / max(told["num_hidden_layers"] - 1, 1) + 1e-5
        self.slopes = [slope * depth for slope in slopes(self.heads)]

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        (x,) = hidden_states
        parts = self.query_key_value(x).unflatten(-1, (3, self.heads, self.width)).unbind(1)
        q, k, v = (part.transpose(0, 1) for part in parts)
        if hasattr(self, "query_layernorm"):
            q = _normed(q, self.eps) * self.query_layernorm.weight
            k = _normed(k, self.eps) * self.key_layernorm.weight
        q, k = self._turn(q), self._turn(k)
        ages = torch.arange(len(x))[:, None] - torch.arange(len(x))
        kept = torch.exp(-torch.tensor(self.slopes)[:, None, None] * ages) * (ages >= 0)
        answer = (q @ k.transpose(1, 2) * self.width**-0.5 * kept) @ v
        grouped = _normed(answer.transpose(0, 1).reshape(len(x), self.groups, -1), self.eps)
        opened = grouped.flatten(1) * self.g_norm.weight * self.g_proj(x).sigmoid()
        return self.dense(opened)[None], None

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        half = self.turned // 2
        frequencies = self.theta ** -(torch.arange(half) * 2 / self.turned)
        angles = torch.arange(x.shape[1])[:, None] * frequencies
        first, second, rest = x.split([half, half, self.width - self.turned], dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def slopes(heads: int) -> list[float]:
    """Of heads that are a power of two; of others, those of the powers before and behind."""
    if heads & (heads - 1) == 0:
        return [2.0 ** (-8 * place / heads) for place in range(1, heads + 1)]
    before = 1 << (heads.bit_length() - 1)
    return [*slopes(before), *slopes(2 * before)[::2][: heads - before]]


def _normed(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
