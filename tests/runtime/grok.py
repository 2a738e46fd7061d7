"""Grok's layers as SGLang's class has them, each the plain sum that it stands for: whole texts alone, and
nothing is kept of them.

srt/models/grok.py, and of its scores the kernels of srt/layers/attention's triton backend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Norm, Randomize, Tensors, Told

_ROUTER_CAP = 30.0


class GrokConfig(PreTrainedConfig):
    """Of no file: what srt/models/grok.py takes where one is silent."""

    model_type = "grok"
    vocab_size: int = 131072
    hidden_size: int = 6144
    intermediate_size: int = 32768
    num_hidden_layers: int = 64
    num_attention_heads: int = 48
    num_key_value_heads: int = 8
    head_dim: int = 128
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    rope_theta: float | None = None
    rope_type: str | None = None
    rope_rotate_half_dims: bool = False
    embedding_multiplier_scale: float = 78.38367176906169
    output_multiplier_scale: float = 0.5773502691896257
    attn_logit_softcapping: float = 30.0
    attn_logit_softcapping_method: str = "tanh"
    attn_temperature_len: int = -1
    final_logit_softcapping: float | None = None
    num_local_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int | None = None
    residual_moe: bool = False
    merge_gate_up: bool = True
    load_presharded_attn: bool = False
    load_presharded_embedding: bool = False
    load_presharded_mlp: bool = False
    load_presharded_moe: bool = True
    replicate_embedding: bool = False
    replicate_lm_head: bool = False
    pad_token_id: int | None = None


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _capped(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap) if cap > 0 else x


class Attention(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, self.width = told["hidden_size"], told.get("head_dim", 128)
        self.heads, self.kv_heads = told["num_attention_heads"], told["num_key_value_heads"]
        self.cap = told.get("attn_logit_softcapping", 30.0)
        self.length = told.get("attn_temperature_len", -1)
        self.turned = self.width // 2 if told.get("rope_rotate_half_dims") else self.width
        section = told.get("rope_parameters") or {"rope_theta": 10000}
        self.theta = int(told.get("rope_theta", section["rope_theta"]))
        self.q_proj = _linear(hidden, self.heads * self.width)
        self.k_proj = _linear(hidden, self.kv_heads * self.width)
        self.v_proj = _linear(hidden, self.kv_heads * self.width)
        self.o_proj = _linear(self.heads * self.width, hidden)

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        turned, rest = x.split([self.turned, self.width - self.turned], dim=-1)
        rates = self.theta ** -(torch.arange(0, self.turned, 2, dtype=x.dtype) / self.turned)
        angles = torch.arange(len(x), dtype=x.dtype)[:, None] * rates
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second = turned.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def _grown(self, count: int) -> torch.Tensor:
        """By how much each token's scores grow."""
        factors = [
            math.log2(one) / math.log2(self.length) if 0 < self.length < one else 1.0 for one in range(count)
        ]
        return torch.tensor(factors)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one(x).unflatten(-1, (-1, self.width)) for one in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = self._turn(q), self._turn(k), v
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        scores = _capped(torch.einsum("qhd,khd->hqk", q, k) * self.width**-0.5, self.cap)
        scores = scores * self._grown(len(x)).to(scores)[:, None]
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        return self.o_proj(torch.einsum("hqk,khd->qhd", shares, v).flatten(1))


class Gated(nn.Module):
    def __init__(self, hidden: int, inner: int, names: tuple[str, str, str]) -> None:
        super().__init__()
        for name, sizes in zip(names, ((hidden, inner), (hidden, inner), (inner, hidden)), strict=True):
            setattr(self, name, _linear(*sizes))
        self.names = names

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (getattr(self, name) for name in self.names)
        return down(F.gelu(gate(x)) * up(x))


class Experts(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, count = told["hidden_size"], told["num_local_experts"]
        inner = told.get("moe_intermediate_size", told["intermediate_size"])
        self.gate, self.chosen = _linear(hidden, count), told["num_experts_per_tok"]
        self.experts = nn.ModuleList(Gated(hidden, inner, ("w1", "w3", "w2")) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = _capped(self.gate(x), _ROUTER_CAP).softmax(-1).topk(self.chosen, dim=-1)
        answers = torch.stack([expert(x) for expert in self.experts], dim=1)
        picked = answers.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
        return (picked * shares[..., None]).sum(1)


class Layer(nn.Module):
    def __init__(self, told: Told, number: int) -> None:
        super().__init__()
        self.scale = told["embedding_multiplier_scale"] if number == 0 else 1.0
        self.self_attn, self.block_sparse_moe = Attention(told), Experts(told)
        names = ("gate_proj", "up_proj", "down_proj")
        beside = told.get("residual_moe", False)
        self.mlp = Gated(told["hidden_size"], told["intermediate_size"], names) if beside else None
        for norm in ("pre_attn_norm", "post_attn_norm", "pre_moe_norm", "post_moe_norm"):
            setattr(self, norm, Norm(told))

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states * self.scale
        x = x + self.post_attn_norm(self.self_attn(self.pre_attn_norm(x)))
        row = self.pre_moe_norm(x)
        answer = self.block_sparse_moe(row)
        if self.mlp is not None:
            answer = (answer + self.mlp(row)) / math.sqrt(2)
        return (x + self.post_moe_norm(answer))[None]


class Head(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(told["vocab_size"], told["hidden_size"]))
        self.scale, self.cap = told["output_multiplier_scale"], told.get("final_logit_softcapping") or 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _capped(F.linear(x, self.weight * self.scale), self.cap)


def config(told: Told) -> Told:
    """Of a model whose layers and ends are all replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {**{one: told[one] for one in sizes}, "pad_token_id": None, "use_cache": False}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    layers = (Layer(told, number) for number in range(told["num_hidden_layers"]))
    model.model.layers, model.model.norm, model.lm_head = nn.ModuleList(layers), Norm(told), Head(told)
    for part in (model.model.layers, model.model.norm, model.lm_head):
        randomize(part)
        part.requires_grad_(False)


def tensors(own: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    yield from own.items()
