"""dots.note's layers as SGLang's class has them, each the plain sum that it stands for: whole texts alone.

srt/models/dots3_common/modeling.py, srt/layers/attention/dsa/dsa_indexer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from tests.runtime.kimi_k3 import Experts, Gated, Norm
from tests.runtime.told import Told

_NAMES = ("gate_proj", "up_proj", "down_proj")


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _turned(x: torch.Tensor, theta: float) -> torch.Tensor:
    """[T, heads, D] by pairs of neighbours."""
    rates = theta ** -(torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])
    angles = (torch.arange(len(x), dtype=x.dtype)[:, None] * rates)[:, None]
    even, odd = x[..., ::2], x[..., 1::2]
    pairs = even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()
    return torch.stack(pairs, dim=-1).flatten(-2)


class Indexer(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.heads, self.width, self.top = (
            told[one] for one in ("index_n_heads", "index_head_dim", "index_topk")
        )
        self.turned, self.theta = told["qk_rope_head_dim"], told["rope_theta"]
        self.wq_b = _linear(told["q_lora_rank"], self.heads * self.width)
        self.wk, self.weights_proj = (_linear(told["hidden_size"], rows) for rows in (self.width, self.heads))
        self.k_norm = nn.LayerNorm(self.width, eps=1e-6)

    def forward(self, x: torch.Tensor, compressed: torch.Tensor) -> torch.Tensor:
        """[T, T]: which tokens each may see."""
        q = self.wq_b(compressed).unflatten(-1, (self.heads, self.width))
        k = self.k_norm(self.wk(x))[:, None]
        q, k = (
            torch.cat((_turned(one[..., : self.turned], self.theta), one[..., self.turned :]), dim=-1)
            for one in (q, k)
        )
        weights = self.weights_proj(x) * (self.heads * self.width) ** -0.5
        scores = torch.einsum("qhd,kd->qhk", q, k[:, 0]).relu()
        wanted = torch.einsum("qhk,qh->qk", scores, weights)
        later = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        best = wanted.masked_fill(later, float("-inf")).topk(min(self.top, len(x)), dim=-1).indices
        return torch.zeros_like(later).scatter_(1, best, True)


class Latents(nn.Module):
    def __init__(self, told: Told, number: int) -> None:
        super().__init__()
        self.is_behind = told["layer_types"][number] == "sliding_attention"
        before = "swa_" if self.is_behind else ""
        names = ("num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim")
        self.heads, lora, self.rank, self.nope, self.rest = (told[f"{before}{one}"] for one in names)
        self.width, hidden, eps = told[f"{before}v_head_dim"], told["hidden_size"], told["rms_norm_eps"]
        self.theta = told.get(f"{before}rope_theta", told["rope_theta"])
        self.window, self.eps = told["sliding_window_size"], eps
        rescales = told.get("apply_mla_qkv_lora_rescale", True)
        self.scales = [(hidden / rank) ** 0.5 if rescales else 1.0 for rank in (lora, self.rank)]
        self.q_a_proj, self.q_a_layernorm = _linear(hidden, lora), Norm(lora, eps)
        self.q_b_proj = _linear(lora, self.heads * (self.nope + self.rest))
        self.kv_a_proj_with_mqa = _linear(hidden, self.rank + self.rest)
        self.kv_a_layernorm, self.k_rope_only_layernorm = Norm(self.rank, eps), Norm(self.rest, eps)
        self.kv_b_proj = _linear(self.rank, self.heads * (self.nope + self.width))
        self.o_proj = _linear(self.heads * self.width, hidden)
        is_one = told.get(f"{before}attention_gate_type", "headwise") == "headwise"
        self.g_proj = _linear(hidden, self.heads * (1 if is_one else self.width))
        self.indexer = Indexer(told) if told.get("index_topk") and not self.is_behind else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        compressed = self.q_a_layernorm(self.q_a_proj(x)) * self.scales[0]
        q = self.q_b_proj(compressed).unflatten(-1, (self.heads, -1))
        latent, rest = self.kv_a_proj_with_mqa(x).split([self.rank, self.rest], dim=-1)
        latent = self.kv_a_layernorm(latent) * self.scales[1]
        rest = _turned(self.k_rope_only_layernorm(rest)[:, None], self.theta)
        both = self.kv_b_proj(latent).unflatten(-1, (self.heads, -1))
        keys, values = both.split([self.nope, self.width], dim=-1)
        keys = torch.cat((keys, rest.expand(-1, self.heads, -1)), dim=-1)
        q = torch.cat((q[..., : self.nope], _turned(q[..., self.nope :], self.theta)), dim=-1)
        scores = torch.einsum("qhd,khd->hqk", q, keys) * q.shape[-1] ** -0.5
        shares = scores.masked_fill(~self._seen(x, compressed), float("-inf")).softmax(-1)
        answer = torch.einsum("hqk,khd->qhd", shares, values)
        gate = self.g_proj(x).sigmoid().unflatten(-1, (self.heads, -1))
        return self.o_proj((answer * gate).flatten(1))

    def _seen(self, x: torch.Tensor, compressed: torch.Tensor) -> torch.Tensor:
        seen = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        if self.is_behind:
            return seen.triu(1 - self.window)
        return seen if self.indexer is None else seen & self.indexer(x, compressed)


class Layer(nn.Module):
    def __init__(self, told: Told, number: int) -> None:
        super().__init__()
        hidden, eps = told["hidden_size"], told["rms_norm_eps"]
        first, every = told.get("first_k_dense_replace", 1), told.get("moe_layer_freq", 1)
        self.self_attn = Latents(told, number)
        routed = _routed(told)
        is_routed = number >= first and number % every == 0
        self.mlp = Experts(routed) if is_routed else Gated(routed, hidden, told["intermediate_size"], _NAMES)
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, eps), Norm(hidden, eps)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        x = x + self.self_attn(self.input_layernorm(x))
        return (x + self.mlp(self.post_attention_layernorm(x)))[None]


def _routed(told: Told) -> Told:
    """As Kimi K3's experts are told."""
    names = {
        "num_experts": "n_routed_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "num_expert_group": "n_group",
        "moe_renormalize": "norm_topk_prob",
    }
    same = ("hidden_size", "moe_intermediate_size", "topk_group", "routed_scaling_factor", "rms_norm_eps")
    found = {name: told[other] for name, other in names.items() if other in told}
    return {"hidden_act": "silu", **{name: told[name] for name in same if name in told}, **found}


def config(told: Told) -> Told:
    """Of a model whose layers are all replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps")
    return {one: told[one] for one in sizes}


def alter(model: Any, told: Told, randomize: Callable[[nn.Module], None]) -> None:
    layers = (Layer(told, number) for number in range(told["num_hidden_layers"]))
    model.model.layers = nn.ModuleList(layers)
    randomize(model.model.layers)
    model.model.layers.requires_grad_(False)


def tensors(own: Mapping[str, torch.Tensor], told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in own.items():
        for ours, theirs in zip(("w1", "w3", "w2"), _NAMES, strict=True):
            name = name.replace(f".{ours}.", f".{theirs}.")
        yield name, tensor
