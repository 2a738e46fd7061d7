"""Intern-S1-Pro's text by transformers' Qwen3-MoE, with what SGLang's class has of its own: routers that
choose in each group, and a rope that each KV head mixes (srt/models/interns1pro.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.runtime.told import Randomize, Tensors, Told, each_expert, shared

_SAME = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")


def sizes(told: Told) -> Told:
    kind = {one: value for one, value in told["rope_scaling"].items() if not _is_mixing(one)}
    return {
        **shared(told),
        **{one: told[one] for one in (*_SAME, "head_dim", "attention_bias")},
        "rope_parameters": {"rope_theta": told["rope_theta"], **kind},
    }


def _is_mixing(name: str) -> bool:
    return name.startswith("fope_") or name == "num_inv_freq"


class Mixing(nn.Module):
    """Of each KV head, at each position: its cosines and sines, where what is not mixed is 1."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        pairs, longest = told["head_dim"] // 2, told["max_position_embeddings"]
        turns = [told["rope_theta"] ** (-pair / pairs) for pair in range(pairs)]
        asked = told["rope_scaling"].get("num_inv_freq")
        kept = [turn for turn in turns if turn > 2 * math.pi / longest] if asked is None else turns[:asked]
        self.turns, self.rest = torch.tensor(kept), pairs - len(kept)
        each = torch.randn(2, told["num_key_value_heads"], len(kept), len(kept)) / len(kept) ** 0.5
        self.cos_coef, self.sin_coef = (nn.Parameter(one, requires_grad=False) for one in each)

    def forward(self, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.arange(tokens, dtype=self.turns.dtype)[:, None] * self.turns
        found = []
        for waves, by in ((angles.cos(), self.cos_coef), (angles.sin(), self.sin_coef)):
            mixed = F.pad(torch.stack([waves @ one for one in by]), (0, self.rest), value=1.0)
            found.append(torch.cat((mixed, mixed), dim=-1).to(by.dtype))
        return found[0], found[1]


class Attention(nn.Module):
    def __init__(self, own: Any, mixing: list[Mixing], told: Told) -> None:
        super().__init__()
        for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm"):
            setattr(self, part, getattr(own, part))
        self.mixing, self.groups, self.width = mixing, told["num_key_value_heads"], told["head_dim"]

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        x = hidden_states[0]
        cos, sin = self.mixing[0](len(x))
        q, k, v = (
            one(x).view(len(x), self.groups, -1, self.width)
            for one in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (_turned(one.permute(1, 2, 0, 3), cos, sin) for one in (self.q_norm(q), self.k_norm(k)))
        scores = q @ k.transpose(-1, -2) * self.width**-0.5
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        answer = (shares @ v.permute(1, 2, 0, 3)).permute(2, 0, 1, 3).flatten(1)
        return self.o_proj(answer)[None], None


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]


class Gate(nn.Module):
    def __init__(self, own: Any, told: Told) -> None:
        super().__init__()
        self.weight, self.groups = own.weight, told["router_n_groups"]
        self.each, self.is_whole = told["num_experts_per_tok"] // self.groups, told["norm_topk_prob"]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = F.linear(x.reshape(-1, x.shape[-1]), self.weight)
        shares = logits.softmax(-1)
        size = shares.shape[-1] // self.groups
        parts = [part.topk(self.each, dim=-1) for part in shares.split(size, dim=-1)]
        ids = torch.cat([part.indices + number * size for number, part in enumerate(parts)], dim=-1)
        weights = torch.cat([part.values for part in parts], dim=-1)
        return logits, weights / weights.sum(-1, keepdim=True) if self.is_whole else weights, ids


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    is_mixed = any(_is_mixing(name) for name, value in told["rope_scaling"].items() if value is not None)
    mixing = Mixing(told) if is_mixed else None
    for layer in model.model.layers:
        if mixing is not None:
            layer.self_attn = Attention(layer.self_attn, [mixing], told)
        if told["router_n_groups"] > 0:
            layer.mlp.gate = Gate(layer.mlp.gate, told)
    if mixing is not None:
        model.model.rotary_emb.mixing = mixing


def tensors(tensors: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in tensors.items():
        stem, _, kind = name.rpartition(".")
        if kind in ("gate_up_proj", "down_proj"):
            yield from each_expert(stem, kind, tensor)
        else:
            yield name.replace("rotary_emb.mixing.", "rotary_emb."), tensor
