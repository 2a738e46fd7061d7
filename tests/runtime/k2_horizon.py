"""K2 Horizon's layers as SGLang's class has them, each the plain sum that it stands for: whole texts alone.

srt/models/xllm.py, and of its values srt/layers/mova.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told

_CORRECTION = "shift"


class K2HorizonConfig(PreTrainedConfig):
    """Of no class: what published files tell, of which srt/models/xllm.py takes few where one is silent."""

    model_type = "k2_horizon"
    default_theta = 1e7
    vocab_size: int = 250624
    hidden_size: int = 4096
    intermediate_size: int = 12288
    num_hidden_layers: int = 36
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int | None = None
    rope_head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 524288
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 0
    eos_token_id: int | None = 1
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    attention_dropout: float = 0.0
    attention_gate_func: str | None = None
    query_key_norm: bool = False
    sliding_window: int | None = None
    use_sliding_window: bool = False
    layernorm_num_groups: int = 1
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    num_experts: int = 0
    num_experts_per_tok: int = 0
    num_shared_experts: int = 0
    moe_intermediate_size: int | None = None
    moe_gate_bias: bool = False
    norm_topk_prob: bool = True
    router_score_func: str = "sigmoid"
    router_scaling_factor: float = 1.0
    output_router_logits: bool = False
    router_aux_loss_coef: float = 0.001
    mova_num_experts: int = 0
    mova_num_experts_per_tok: int = 0
    rope_parameters: dict[str, Any] | None = None


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Norm(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(told["hidden_size"])), told["rms_norm_eps"]
        self.groups = told.get("layernorm_num_groups") or 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [
            part / (part.square().mean(-1, keepdim=True) + self.eps).sqrt()
            for part in x.chunk(self.groups, dim=-1)
        ]
        return torch.cat(parts, dim=-1) * self.weight


class Gate(nn.Linear):
    """Its correction says which are chosen, and not how much they count."""

    def __init__(self, told: Told, count: int, chosen: int) -> None:
        super().__init__(told["hidden_size"], count, bias=False)
        self.chosen, self.factor = chosen, told.get("router_scaling_factor", 1.0)
        self.renormalizes = told.get("norm_topk_prob", True)
        correction = torch.empty(count) if told.get("moe_gate_bias") else None
        self.register_buffer(_CORRECTION, correction)

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = self(x).sigmoid()
        correction = getattr(self, _CORRECTION)
        ids = (scores if correction is None else scores + correction).topk(self.chosen, dim=-1).indices
        found = scores.gather(1, ids)
        return ids, (found / found.sum(-1, keepdim=True) if self.renormalizes else found) * self.factor


class Attention(nn.Module):
    def __init__(self, told: Told, is_sparse: bool) -> None:
        super().__init__()
        hidden, self.width = told["hidden_size"], told["head_dim"]
        self.heads, self.kv_heads = told["num_attention_heads"], told["num_key_value_heads"]
        self.theta = told["rope_parameters"]["rope_theta"]
        values, self.gate = told.get("mova_num_experts", 0), told.get("attention_gate_func")
        self.q_proj, self.k_proj = (
            _linear(hidden, count * self.width) for count in (self.heads, self.kv_heads)
        )
        self.o_proj = _linear(self.heads * self.width, hidden)
        if values:
            self.gate_proj = _linear(hidden, self.heads * self.width)
        self.routes = bool(values) and is_sparse
        if self.routes:
            self.v_router = Gate(told, values, told["mova_num_experts_per_tok"])
            if self.v_router.chosen == 1:
                self.v_router.renormalizes = False
            self.v_experts = nn.ModuleList(_linear(hidden, self.kv_heads * self.width) for _ in range(values))
        else:
            self.v_proj = _linear(hidden, self.kv_heads * self.width)

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        rates = self.theta ** -(torch.arange(0, self.width, 2, dtype=x.dtype) / self.width)
        angles = torch.arange(len(x), dtype=x.dtype)[:, None] * rates
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _values(self, x: torch.Tensor) -> torch.Tensor:
        if not self.routes:
            return self.v_proj(x)
        ids, shares = self.v_router.route(x)
        every = torch.stack([F.silu(one(x)) for one in self.v_experts], dim=1)
        picked = every.gather(1, ids[..., None].expand(-1, -1, every.shape[-1]))
        return (picked * shares[..., None]).sum(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        each = (self.q_proj(x), self.k_proj(x), self._values(x))
        q, k, v = (one.unflatten(-1, (-1, self.width)) for one in each)
        q, k = self._turn(q), self._turn(k)
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.width**-0.5
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        answer = torch.einsum("hqk,khd->qhd", shares, v).flatten(1)
        if hasattr(self, "gate_proj"):
            gate = self.gate_proj(x)
            opened = F.silu(gate) if self.gate == "silu" else torch.log2(1 + 2.0**gate)
            answer = answer * opened
        return self.o_proj(answer)


class Gated(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = _linear(hidden, inner), _linear(hidden, inner)
        self.down_proj = _linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, inner = told["hidden_size"], told["moe_intermediate_size"]
        self.gate = Gate(told, told["num_experts"], told["num_experts_per_tok"])
        self.experts = nn.ModuleList(Gated(hidden, inner) for _ in range(told["num_experts"]))
        shared = told.get("num_shared_experts", 0)
        self.shared_experts = Gated(hidden, inner * shared) if shared else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ids, shares = self.gate.route(x)
        every = torch.stack([expert(x) for expert in self.experts], dim=1)
        answer = (every.gather(1, ids[..., None].expand(-1, -1, x.shape[-1])) * shares[..., None]).sum(1)
        return answer if self.shared_experts is None else answer + self.shared_experts(x)


class Layer(nn.Module):
    def __init__(self, told: Told, number: int) -> None:
        super().__init__()
        is_sparse = bool(told.get("num_experts")) and number not in told["mlp_only_layers"]
        self.self_attn = Attention(told, is_sparse)
        self.mlp = Experts(told) if is_sparse else Gated(told["hidden_size"], told["intermediate_size"])
        self.input_layernorm, self.post_attention_layernorm = Norm(told), Norm(told)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        x = x + self.self_attn(self.input_layernorm(x))
        return (x + self.mlp(self.post_attention_layernorm(x)))[None]


def config(told: Told) -> Told:
    """Of a model whose layers and last norm are replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {**{one: told[one] for one in sizes}, "pad_token_id": None, "use_cache": False}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    layers = (Layer(told, number) for number in range(told["num_hidden_layers"]))
    model.model.layers, model.model.norm = nn.ModuleList(layers), Norm(told)
    for part in (model.model.layers, model.model.norm):
        randomize(part)
    model.requires_grad_(False)


def tensors(own: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in own.items():
        yield name.replace(_CORRECTION, "bias"), tensor
