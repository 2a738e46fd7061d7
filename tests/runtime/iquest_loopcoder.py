"""IQuest LoopCoder's layers as SGLang's class has them, each the sum that it stands for: whole texts alone.

srt/models/iquest_loopcoder.py; its config class is a file of its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Norm, Randomize, Tensors, Told


class IQuestLoopCoderConfig(PreTrainedConfig):
    model_type = "iquestloopcoder"
    vocab_size: int = 76800
    hidden_size: int = 5120
    intermediate_size: int = 27648
    num_hidden_layers: int = 80
    num_attention_heads: int = 40
    num_key_value_heads: int = 8
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 131072
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-5
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | None = 2
    tie_word_embeddings: bool = False
    rope_theta: float = 500000.0
    rope_scaling: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: float = 0.0
    mlp_bias: bool = False
    use_sliding_window: bool = False
    sliding_window: int | None = None
    loop_num: int = 2
    loop_window_size: int = 64


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    """`kept` are keys and values of the first round."""

    kept: tuple[torch.Tensor, torch.Tensor]

    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden = told["hidden_size"]
        self.heads, self.kv_heads = told["num_attention_heads"], told["num_key_value_heads"]
        self.width, self.theta = hidden // self.heads, told["rope_theta"]
        self.window = told["loop_window_size"]
        for name, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
            setattr(self, f"{name}_proj", _linear(hidden, heads * self.width))
        self.o_proj = _linear(self.heads * self.width, hidden)
        self.gates = nn.Linear(self.width, self.heads)

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        rates = self.theta ** -(torch.arange(0, self.width, 2, dtype=x.dtype) / self.width)
        angles = torch.arange(len(x), dtype=x.dtype)[:, None] * rates
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _seen(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, before: int) -> torch.Tensor:
        """By each token of itself and of so many before it."""
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=1) for one in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.width**-0.5
        behind = torch.arange(len(q))[:, None] - torch.arange(len(q))
        scores = scores.masked_fill((behind < 0) | (behind > before), float("-inf"))
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v)

    def forward(self, x: torch.Tensor, turn: int) -> torch.Tensor:
        q, k, v = (one(x).unflatten(-1, (-1, self.width)) for one in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self._turn(q), self._turn(k)
        if turn == 0:
            self.kept = k, v
            return self.o_proj(self._seen(q, k, v, len(x)).flatten(1))
        found = torch.einsum("thd,hd->th", q, self.gates.weight) + self.gates.bias
        share = found.sigmoid()[..., None]
        answer = share * self._seen(q, *self.kept, len(x)) + (1 - share) * self._seen(q, k, v, self.window)
        return self.o_proj(answer.flatten(1))


class Gated(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, inner = told["hidden_size"], told["intermediate_size"]
        self.gate_proj, self.up_proj = _linear(hidden, inner), _linear(hidden, inner)
        self.down_proj = _linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(told), Gated(told)
        self.input_layernorm, self.post_attention_layernorm = Norm(told), Norm(told)

    def forward(self, hidden_states: torch.Tensor, turn: int = 0, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        x = x + self.self_attn(self.input_layernorm(x), turn)
        return (x + self.mlp(self.post_attention_layernorm(x)))[None]


class Again(nn.Module):
    """A layer in a later round, of whose weights it has none."""

    def __init__(self, layers: list[Layer], number: int, turn: int) -> None:
        super().__init__()
        self.layers, self.number, self.turn = layers, number, turn

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        return self.layers[self.number](hidden_states, self.turn)


def config(told: Told) -> Told:
    """Of a model whose layers and last norm are replaced."""
    if told["hidden_act"] != "silu":
        raise ValueError("another activation")
    sizes = ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "tie_word_embeddings")
    layers = told["num_hidden_layers"] * told["loop_num"]
    return {**{one: told[one] for one in sizes}, "num_hidden_layers": layers, "use_cache": False}


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    own = [Layer(told) for _ in range(told["num_hidden_layers"])]
    again = (Again(own, number, turn) for turn in range(1, told["loop_num"]) for number in range(len(own)))
    model.model.layers, model.model.norm = nn.ModuleList([*own, *again]), Norm(told)
    randomize(nn.ModuleDict({"layers": model.model.layers, "norm": model.model.norm}))
    model.requires_grad_(False)


def tensors(found: Tensors, told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in found.items():
        stem, is_gate, last = name.partition(".self_attn.gates.")
        yield f"model.gate_projections.{stem.split('.')[-1]}.{last}" if is_gate else name, tensor
