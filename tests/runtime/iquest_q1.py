"""IQuest Q1's layers as SGLang's class has them, each the plain sum that it stands for: whole texts alone.

srt/models/iquest_q1.py, and of its fields srt/configs/iquest_q1.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told

_FULL, _SLIDES = "full_attention", "sliding_attention"


class IQuestQ1Config(PreTrainedConfig):
    """SGLang's."""

    model_type = "iquest_q1"
    vocab_size: int = 160000
    hidden_size: int = 3072
    dense_intermediate_size: int = 12288
    intermediate_size: int = 1536
    num_hidden_layers: int = 88
    num_attention_heads: int = 48
    num_key_value_heads: int = 8
    head_dim: int = 128
    hidden_act: str = "silu"
    max_position_embeddings: int = 524288
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = 0
    tie_word_embeddings: bool = False
    rope_theta: float = 1000000.0
    rope_scaling: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    rotary_dim: int | None = 32
    no_rope_layers: list[int] | None = None
    swa_rope_theta: float = 10000.0
    sliding_window: int = 4096
    use_hybrid_layers: bool = True
    use_sliding_window: bool = True
    first_layers_types: list[str] | None = None
    hybrid_layers_types_block: list[str] | None = None
    num_hybrid_layers_block: int = 21
    last_layers_types: list[str] | None = None
    mlp_only_layers: list[int] | None = None
    num_experts: int = 256
    num_experts_per_tok: int = 8
    moe_router_dtype: str = "fp32"
    enable_sink_attention: bool = True
    first_layer_attn_out_scale: float = 1.0
    first_layer_ffn_out_scale: float = 1.0
    attn_out_scale: float = 1.0
    ffn_out_scale: float = 0.53881590608
    softmax_scale: float | None = None
    logit_scale: float = 1.0
    enable_lm_head_fp32: bool = True
    num_mtp_layers: int = 0


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def kinds(told: Told) -> list[str]:
    layers = told["num_hidden_layers"]
    block = told.get("hybrid_layers_types_block", [_FULL] + [_SLIDES] * 3) * told["num_hybrid_layers_block"]
    first = told.get("first_layers_types", [_FULL])
    listed = [*first, *block, *told.get("last_layers_types", [_FULL] * 3)]
    if not told.get("use_hybrid_layers", True):
        return [_FULL] * layers
    if len(listed) != layers:
        raise ValueError("another number of layers")
    return listed if told.get("use_sliding_window", True) else [_FULL] * layers


class Norm(nn.Module):
    def __init__(self, told: Told, width: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), told["rms_norm_eps"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


class Attention(nn.Module):
    def __init__(self, told: Told, kind: str) -> None:
        super().__init__()
        hidden, self.width = told["hidden_size"], told["head_dim"]
        self.heads, self.kv_heads = told["num_attention_heads"], told["num_key_value_heads"]
        self.scale = told.get("softmax_scale", self.width**-0.5)
        self.window = told["sliding_window"] if kind == _SLIDES else None
        rope = told.get("rope_parameters") or told.get("rope_scaling") or {}
        whole = int(self.width * rope.get("partial_rotary_factor", 1.0))
        self.turned = told["rotary_dim"] if told.get("rotary_dim", 32) is not None else whole
        full = rope.get("rope_theta", told.get("rope_theta", 1e6))
        self.theta = told.get("swa_rope_theta", 1e4) if kind == _SLIDES else full
        for name, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
            setattr(self, f"{name}_proj", _linear(hidden, heads * self.width))
        self.o_proj = _linear(self.heads * self.width, hidden)
        self.q_norm, self.k_norm = Norm(told, self.width), Norm(told, self.width)
        if told.get("enable_sink_attention", True):
            self.sink_k = nn.Parameter(torch.empty(self.kv_heads, self.width))

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        turned, rest = x.split([self.turned, self.width - self.turned], dim=-1)
        rates = self.theta ** -(torch.arange(0, self.turned, 2, dtype=x.dtype) / self.turned)
        angles = torch.arange(len(x), dtype=x.dtype)[:, None] * rates
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second = turned.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one(x).unflatten(-1, (-1, self.width)) for one in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self._turn(self.q_norm(q)), self._turn(self.k_norm(k))
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.scale
        at = torch.arange(len(x))
        unseen = at > at[:, None]
        if self.window is not None:
            unseen = unseen | (at <= at[:, None] - self.window)
        scores = scores.masked_fill(unseen, float("-inf"))
        if hasattr(self, "sink_k"):
            keys = self.sink_k.repeat_interleave(self.heads // self.kv_heads, dim=0)
            own = torch.einsum("qhd,hd->hq", q, keys) * self.scale
            scores = torch.cat((scores, own[..., None]), dim=-1)
        shares = scores.softmax(-1)[..., : len(x)]
        return self.o_proj(torch.einsum("hqk,khd->qhd", shares, v).flatten(1))


class Gated(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, inner = told["hidden_size"], told["dense_intermediate_size"]
        self.gate_proj, self.up_proj = _linear(hidden, inner), _linear(hidden, inner)
        self.down_proj = _linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Stacked(nn.Module):
    """All experts' matrices, gates above ups."""

    def __init__(self, count: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.fc = nn.Parameter(torch.empty(count, 2 * inner, hidden))
        self.proj = nn.Parameter(torch.empty(count, hidden, inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, experts, hidden]"""
        gate, up = torch.einsum("th,eih->tei", x, self.fc).chunk(2, dim=-1)
        return torch.einsum("tei,ehi->teh", F.silu(gate) * up, self.proj)


class Experts(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.router = _linear(told["hidden_size"], told["num_experts"])
        self.experts = Stacked(told["num_experts"], told["hidden_size"], told["intermediate_size"])
        self.chosen = told["num_experts_per_tok"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, chosen = self.router(x).topk(self.chosen, dim=-1)
        picked = self.experts(x).gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))
        return (picked * found.softmax(-1)[..., None]).sum(1)


class Layer(nn.Module):
    def __init__(self, told: Told, number: int, kind: str) -> None:
        super().__init__()
        self.self_attn = Attention(told, kind)
        is_dense = number in told.get("mlp_only_layers", [0])
        self.mlp = Gated(told) if is_dense else Experts(told)
        for norm in ("attention_norm", "attn_out_norm", "feed_forward_norm"):
            setattr(self, norm, Norm(told, told["hidden_size"]))
        self.is_first, stem = number == 0, "" if number else "first_layer_"
        if self.is_first:
            self.ffn_out_norm = Norm(told, told["hidden_size"])
        self.attn_scale = told.get(f"{stem}attn_out_scale", 1.0)
        self.ffn_scale = told.get(f"{stem}ffn_out_scale", 1.0 if self.is_first else 0.53881590608)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        row = self.attention_norm(x)
        x = x if self.is_first else row
        x = x + self.attn_out_norm(self.self_attn(row)) * self.attn_scale
        answer = self.mlp(self.feed_forward_norm(x))
        if self.is_first:
            answer = self.ffn_out_norm(answer)
        return (x + answer * self.ffn_scale)[None]


class Head(nn.Module):
    def __init__(self, told: Told, tied: torch.Tensor | None) -> None:
        super().__init__()
        made = torch.empty(told["vocab_size"], told["hidden_size"]) if tied is None else tied
        self.weight, self.scale = nn.Parameter(made), told.get("logit_scale", 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight) * self.scale


def config(told: Told) -> Told:
    """Of a model whose layers and ends are all replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {**{one: told[one] for one in sizes}, "pad_token_id": None, "use_cache": False}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    layers = (Layer(told, number, kind) for number, kind in enumerate(kinds(told)))
    model.model.layers, model.model.norm = nn.ModuleList(layers), Norm(told, told["hidden_size"])
    tied = model.model.embed_tokens.weight.data if told.get("tie_word_embeddings") else None
    model.lm_head = Head(told, tied)
    for part in (model.model.layers, model.model.norm, *((model.lm_head,) if tied is None else ())):
        randomize(part)
    model.requires_grad_(False)


def tensors(own: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    tied = told.get("tie_word_embeddings")
    yield from ((name, tensor) for name, tensor in own.items() if not (tied and name == "lm_head.weight"))
