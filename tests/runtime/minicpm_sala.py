"""MiniCPM-SALA: the fields of SGLang's config class, and a Granite whose layers' attention is written out.

srt/configs/minicpm.py, srt/models/minicpm.py, srt/layers/attention/linear/lightning_backend.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig

from tests.runtime import minicpm
from tests.runtime.lightning import slopes
from tests.runtime.told import Randomize, Told

_LIGHTNING = ("lightning", "lightning_attn", "lightning-attn")


class MiniCPMSALAConfig(PreTrainedConfig):
    """SGLang's."""

    model_type = "minicpm_sala"
    vocab_size: int = 150528
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int = 8
    head_dim: int | None = None
    hidden_act: str = "silu"
    intermediate_size: int = 14336
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = False
    max_position_embeddings: int = 32768
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    scale_emb: float = 12
    scale_depth: float = 1.4
    dim_model_base: int = 256
    mixer_types: list[str] | None = None
    lightning_nh: int | None = None
    lightning_nkv: int | None = None
    lightning_head_dim: int | None = None
    lightning_scale: str | float = "1/sqrt(d)"
    lightning_layerwise_decay: bool = False
    lightning_use_rope: bool = True
    use_output_gate: bool = False
    attention_bias: bool = False
    use_output_norm: bool = False
    qk_norm: bool = True
    attn_use_rope: bool = True
    attn_use_output_gate: bool = False
    sparse_config: dict[str, Any] | None = None


class _Mixer(nn.Module):
    """In the place of a layer's attention: whole texts alone, each key counted by how far it is behind."""

    def __init__(self, told: Told, heads: int, kv_heads: int, width: int) -> None:
        super().__init__()
        hidden = told["hidden_size"]
        self.heads, self.kv_heads, self.width = heads, kv_heads, width
        self.theta, self.eps = told.get("rope_theta", 10000.0), told["rms_norm_eps"]
        for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            setattr(self, f"{name}_proj", nn.Linear(hidden, rows * width, bias=False))
        self.o_proj = nn.Linear(heads * width, hidden, bias=False)

    def asked(self, x: torch.Tensor) -> Any:
        counts = (self.heads, self.kv_heads, self.kv_heads)
        made = (one(x) for one in (self.q_proj, self.k_proj, self.v_proj))
        return (
            one.unflatten(-1, (count, -1)).transpose(0, 1) for one, count in zip(made, counts, strict=True)
        )

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        frequencies = self.theta ** -(torch.arange(half) * 2 / self.width)
        angles = torch.arange(x.shape[1])[:, None] * frequencies
        first, second = x.split(half, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(_Mixer):
    def __init__(self, told: Told) -> None:
        count, width = told["num_attention_heads"], width_of(told)
        super().__init__(told, count, told.get("num_key_value_heads", 8), width)
        self.turns = told.get("attn_use_rope", True)
        if told.get("attn_use_output_gate"):
            self.o_gate = nn.Linear(told["hidden_size"], count * width, bias=False)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        (x,) = hidden_states
        q, k, v = self.asked(x)
        if self.turns:
            q, k = self.turned(q), self.turned(k)
        k, v = (one.repeat_interleave(self.heads // self.kv_heads, dim=0) for one in (k, v))
        scores = q @ k.transpose(1, 2) * self.width**-0.5
        hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        answer = (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(0, 1).flatten(1)
        if hasattr(self, "o_gate"):
            answer = answer * self.o_gate(x).sigmoid()
        return self.o_proj(answer)[None], None


class Lightning(_Mixer):
    def __init__(self, told: Told, layer: int) -> None:
        count = told.get("lightning_nh") or told["num_attention_heads"]
        width = told.get("lightning_head_dim") or width_of(told)
        super().__init__(told, count, count, width)
        self.turns, eps = told.get("lightning_use_rope", True), told["rms_norm_eps"]
        if told.get("qk_norm", True):
            self.q_norm, self.k_norm = nn.RMSNorm(width, eps), nn.RMSNorm(width, eps)
        if told.get("use_output_norm"):
            self.o_norm = nn.RMSNorm(count * width, eps)
        if told.get("use_output_gate"):
            self.z_proj = nn.Linear(told["hidden_size"], count * width, bias=False)
        depth = 1 - layer / max(told["num_hidden_layers"] - 1, 1) + 1e-5
        self.slopes = [one * (depth if told.get("lightning_layerwise_decay") else 1) for one in slopes(count)]

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        (x,) = hidden_states
        q, k, v = self.asked(x)
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        if self.turns:
            q, k = self.turned(q), self.turned(k)
        ages = torch.arange(len(x))[:, None] - torch.arange(len(x))
        kept = torch.exp(-torch.tensor(self.slopes)[:, None, None] * ages) * (ages >= 0)
        answer = ((q @ k.transpose(1, 2) * self.width**-0.5 * kept) @ v).transpose(0, 1).flatten(1)
        if hasattr(self, "o_norm"):
            answer = self.o_norm(answer)
        if hasattr(self, "z_proj"):
            answer = answer * self.z_proj(x).sigmoid()
        return self.o_proj(answer)[None], None


def width_of(told: Told) -> int:
    width: int = told.get("head_dim") or told["hidden_size"] // told["num_attention_heads"]
    return width


def config(told: Told) -> Told:
    """A Granite's, as MiniCPM's."""
    kinds, layers = told.get("mixer_types") or [], told["num_hidden_layers"]
    if len(kinds) > layers or told["hidden_act"] != "silu":
        raise ValueError("more kinds than layers, or another activation")
    usual = {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "tie_word_embeddings": False}
    return minicpm.config({**usual, **told})


def alter(model: Any, told: Told, randomize: Randomize) -> None:
    kinds = told.get("mixer_types") or ["minicpm4"]
    for number, layer in enumerate(model.model.layers):
        is_lightning = kinds[number % len(kinds)] in _LIGHTNING
        layer.self_attn = Lightning(told, number) if is_lightning else Attention(told)
        randomize(layer.self_attn)
    model.requires_grad_(False)
