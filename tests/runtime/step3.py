"""Step3's fields, and its layers as SGLang's class has them: whole texts alone.

srt/configs/step3_vl.py, srt/models/step3_vl.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.kimi_k3 import Gated, Norm
from tests.runtime.told import Told

_NAMES = ("gate_proj", "up_proj", "down_proj")


class Step3TextConfig(PreTrainedConfig):
    model_type = "step3_text"
    hidden_size: int = 7168
    intermediate_size: int = 18432
    num_attention_heads: int = 64
    num_attention_groups: int = 1
    num_hidden_layers: int = 61
    max_seq_len: int = 65536
    vocab_size: int = 128815
    rms_norm_eps: float = 1e-5
    moe_intermediate_size: int = 5120
    moe_num_experts: int = 48
    moe_top_k: int = 3
    rope_theta: float = 500000.0
    rope_scaling: dict[str, Any] | None = None
    max_position_embedding: int = 65536
    share_expert_dim: int = 5120
    share_q_dim: int = 2048
    head_dim: int = 256
    norm_expert_weight: bool = False
    moe_layers_enum: str | None = None


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, rank = told["hidden_size"], told["share_q_dim"]
        self.heads, self.width, self.theta = told["num_attention_heads"], told["head_dim"], told["rope_theta"]
        self.q_proj, self.k_proj, self.v_proj = (_linear(hidden, one) for one in (rank, *[self.width] * 2))
        self.inter_norm, self.wq = Norm(rank, told["rms_norm_eps"]), _linear(rank, self.heads * self.width)
        self.o_proj = _linear(self.heads * self.width, hidden)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        rates = self.theta ** -(torch.arange(0, self.width, 2, dtype=x.dtype) / self.width)
        angles = (torch.arange(len(x), dtype=x.dtype)[:, None] * rates)[:, None]
        one, other = x.chunk(2, dim=-1)
        pairs = one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()
        return torch.cat(pairs, dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self._turned(self.wq(self.inter_norm(self.q_proj(x))).unflatten(-1, (self.heads, -1)))
        k, v = self._turned(self.k_proj(x)[:, None])[:, 0], self.v_proj(x)
        scores = torch.einsum("qhd,kd->hqk", q, k) * self.width**-0.5
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        return self.o_proj(torch.einsum("hqk,kd->qhd", shares, v).flatten(1))


class Matrices(nn.Module):
    """Of all experts, one below another."""

    def __init__(self, count: int, rows: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, rows, width))


class Experts(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        count, inner, hidden = (
            told[one] for one in ("moe_num_experts", "moe_intermediate_size", "hidden_size")
        )
        self.gate, self.top = _linear(hidden, count), told["moe_top_k"]
        self.gate_proj, self.up_proj = (Matrices(count, inner, hidden) for _ in range(2))
        self.down_proj, self.renormalizes = Matrices(count, hidden, inner), told.get("norm_expert_weight")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares, chosen = self.gate(x).softmax(-1).topk(self.top, dim=-1)
        if self.renormalizes:
            shares = shares / shares.sum(-1, keepdim=True)
        gates, ups = (torch.einsum("th,eih->tei", x, one.weight) for one in (self.gate_proj, self.up_proj))
        answers = torch.einsum("tei,ehi->teh", F.silu(gates) * ups, self.down_proj.weight)
        picked = answers.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
        return (picked * shares[..., None]).sum(1)


class Layer(nn.Module):
    def __init__(self, told: Told, number: int) -> None:
        super().__init__()
        hidden, eps = told["hidden_size"], told["rms_norm_eps"]
        self.self_attn, self.is_routed = Attention(told), str(number) in told["moe_layers_enum"].split(",")
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, eps), Norm(hidden, eps)
        silu = {"hidden_act": "silu"}
        if self.is_routed:
            self.moe, self.share_expert = (
                Experts(told),
                Gated(silu, hidden, told["share_expert_dim"], _NAMES),
            )
        else:
            self.mlp = Gated(silu, hidden, told["intermediate_size"], _NAMES)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        x = x + self.self_attn(self.input_layernorm(x))
        row = self.post_attention_layernorm(x)
        return (x + (self.moe(row) + self.share_expert(row) if self.is_routed else self.mlp(row)))[None]


def config(told: Told) -> Told:
    """Of a model whose layers are all replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
    return {**{one: told[one] for one in sizes}, "tie_word_embeddings": False}


def alter(model: Any, told: Told, randomize: Callable[[nn.Module], None]) -> None:
    layers = (Layer(told, number) for number in range(told["num_hidden_layers"]))
    model.model.layers = nn.ModuleList(layers)
    randomize(model.model.layers)
    model.model.layers.requires_grad_(False)
