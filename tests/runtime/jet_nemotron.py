"""Jet-Nemotron: the fields of SGLang's config class, and a Qwen2 most of whose layers are written out.

srt/configs/jet_nemotron.py, srt/models/jet_nemotron.py
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime.told import Randomize, Told, shared


class JetNemotronConfig(PreTrainedConfig):
    """SGLang's, and what its model asks for beside."""

    model_type = "jet_nemotron"
    vocab_size: int = 151936
    num_hidden_layers: int | None = None
    efficient_attention_config: dict[str, Any] | None = None
    hidden_act: str | None = None
    hidden_size: int | None = None
    initializer_range: float | None = None
    intermediate_size: int | None = None
    layer_types: list[str] | None = None
    max_position_embeddings: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    rms_norm_eps: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_theta: float | None = None
    tie_word_embeddings: bool | None = None


def _linear(inputs: int, outputs: int, bias: bool = False) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=bias)


class Taps(nn.Module):
    """Of each token, for each channel."""

    def __init__(self, hidden: int, narrow: int, channels: int, width: int) -> None:
        super().__init__()
        self.kernel_generator = nn.ModuleDict(
            {"w1": _linear(hidden, narrow), "w2": _linear(narrow, channels * width, bias=True)}
        )
        self.channels, self.width = channels, width

    def forward(self, x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        made = self.kernel_generator["w2"](F.silu(self.kernel_generator["w1"](x)))
        taps = made.view(len(x), self.channels, self.width)
        seen = F.pad(values, (0, 0, self.width - 1, 0)).unfold(0, self.width, 1)
        return F.silu((seen * taps).sum(-1))


class Jet(nn.Module):
    """In the place of a layer's attention: whole texts alone, a token after the other."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        block, hidden = told["efficient_attention_config"]["jet"], told["hidden_size"]
        self.heads, self.keys = block["num_heads"], block["head_dim"]
        self.values = int(self.keys * block["expand_v"])
        key, value = self.heads * self.keys, self.heads * self.values
        for name, rows in (("q", key), ("k", key), ("v", value), ("a", self.heads), ("b", self.heads)):
            setattr(self, f"{name}_proj", _linear(hidden, rows))
        self.g_proj, self.o_proj = _linear(hidden, value), _linear(value, hidden)
        self.A_log, self.dt_bias = (nn.Parameter(torch.empty(self.heads)) for _ in range(2))
        narrow = value // block["dconv_generator_reduction"]
        self.dynamic_conv1d = Taps(hidden, narrow, value, block["conv_size"])
        self.o_norm = nn.RMSNorm(self.values, eps=float(block["norm_eps"]))

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        (x,) = hidden_states
        q, k = (_unit(F.silu(one(x)).unflatten(-1, (self.heads, -1))) for one in (self.q_proj, self.k_proj))
        v = self.dynamic_conv1d(x, self.v_proj(x)).unflatten(-1, (self.heads, -1))
        kept = torch.exp(-self.A_log.exp() * F.softplus(self.a_proj(x) + self.dt_bias))
        strength = self.b_proj(x).sigmoid()
        state, answers = x.new_zeros(self.heads, self.values, self.keys), []
        for token in range(len(x)):
            state = state * kept[token, :, None, None]
            missing = v[token] - torch.einsum("hvk,hk->hv", state, k[token])
            state = state + torch.einsum("hv,hk->hvk", missing * strength[token, :, None], k[token])
            answers.append(torch.einsum("hvk,hk->hv", state, q[token]) * self.keys**-0.5)
        opened = self.o_norm(torch.stack(answers)) * F.silu(self.g_proj(x)).unflatten(-1, (self.heads, -1))
        return self.o_proj(opened.flatten(1))[None], None


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def config(told: Told) -> Told:
    """A Qwen2's, whose windows count the token itself."""
    kinds = {"attn": "full_attention", "swa": "sliding_attention", "jet": "full_attention"}
    if told["hidden_act"] != "silu" or len(told["layer_types"]) != told["num_hidden_layers"]:
        raise ValueError("another activation, or another number of layers")
    window = told["efficient_attention_config"].get("swa", {}).get("window_size", 0)
    return {
        **shared(told),
        "rope_parameters": {"rope_type": "default", "rope_theta": told["rope_theta"]},
        "layer_types": [kinds[kind] for kind in told["layer_types"]],
        **{"use_sliding_window": True, "sliding_window": window + 1},
    }


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    for layer, kind in zip(model.model.layers, told["layer_types"], strict=True):
        if kind == "jet":
            layer.self_attn = Jet(told)
            randomize(layer.self_attn)
    model.requires_grad_(False)
