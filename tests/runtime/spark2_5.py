"""Spark 2.5's attention as SGLang's class has it, written out in the layers of a Llama: whole texts alone.

srt/models/spark2_5.py, and its config class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Tensors, Told, shared

ROPES = {
    "full_attention": {"rope_theta": 5000000, "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_theta": 10000, "partial_rotary_factor": 1.0},
}


class Spark2_5Config(PreTrainedConfig):
    model_type = "spark2_5"
    hidden_size: int = 2048
    intermediate_size: int = 6656
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    num_hidden_layers: int = 28
    head_dim: int = 256
    headwise_attn_output_gate: bool = True
    sliding_window: int = 512
    vocab_size: int = 133120
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 8192
    rope_parameters: dict[str, Any] | None = None
    layer_types: list[str] | None = None
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs: Any) -> None:
        self.layer_types = _layer_types(self.layer_types, self.num_hidden_layers)
        self.rope_parameters = self.rope_parameters or {kind: {**told} for kind, told in ROPES.items()}
        super().__post_init__(**kwargs)


def _layer_types(told: list[str] | None, layers: int) -> list[str]:
    usual = ("full_attention" if layer % 4 == 3 else "sliding_attention" for layer in range(layers))
    return [*usual] if told is None else told[:layers]


class Attention(nn.Module):
    def __init__(self, told: Told, kind: str) -> None:
        super().__init__()
        hidden, self.width = told["hidden_size"], told["head_dim"]
        self.heads, self.kv_heads = told["num_attention_heads"], told["num_key_value_heads"]
        rope = (told.get("rope_parameters") or ROPES)[kind]
        self.theta, self.turned = rope["rope_theta"], int(self.width * rope.get("partial_rotary_factor", 1.0))
        self.window = told["sliding_window"] if kind == "sliding_attention" else None
        rows = (self.heads + 2 * self.kv_heads) * self.width
        self.q_k_v_proj = nn.Linear(hidden, rows, bias=False)
        self.out_proj = nn.Linear(self.heads * self.width, hidden, bias=False)
        gates = told.get("headwise_attn_output_gate", True)
        self.g_proj = nn.Linear(hidden, self.heads, bias=False) if gates else None

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        turned, rest = x.split([self.turned, self.width - self.turned], dim=-1)
        rates = self.theta ** -(torch.arange(0, self.turned, 2, dtype=x.dtype) / self.turned)
        angles = torch.arange(len(x), dtype=x.dtype)[:, None] * rates
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second = turned.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        (x,) = hidden_states
        sizes = [count * self.width for count in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (one.unflatten(-1, (-1, self.width)) for one in self.q_k_v_proj(x).split(sizes, dim=-1))
        q, k = self._turn(q), self._turn(k)
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.width**-0.5
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        if self.window is not None:
            unseen = unseen | torch.ones_like(unseen).tril(-self.window)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        answer = torch.einsum("hqk,khd->qhd", shares, v)
        if self.g_proj is not None:
            answer = answer * self.g_proj(x).sigmoid()[..., None]
        return self.out_proj(answer.flatten(1))[None], None


def config(told: Told) -> Told:
    """A Llama's, whose attention is replaced."""
    return {**shared(told), "hidden_act": "gelu_pytorch_tanh", "pad_token_id": None, "use_cache": False}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    kinds = _layer_types(told.get("layer_types"), told["num_hidden_layers"])
    for layer, kind in zip(model.model.layers, kinds, strict=True):
        layer.self_attn = Attention(told, kind)
        randomize(layer.self_attn)
        layer.self_attn.requires_grad_(False)


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in found.items():
        yield name.replace("model.embed_tokens", "model.embedding"), tensor
