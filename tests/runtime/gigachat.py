"""GigaChat 3.5's layers as SGLang's class has them, each the plain sum that it stands for: whole texts alone.

srt/models/gigachat35.py, qwen3_next.py, deepseek_v2.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.runtime.kimi_k3 import Experts, Gated
from tests.runtime.told import Told

_NAMES = ("gate_proj", "up_proj", "down_proj")
_ROWS = 4096  # of a table of angles: no text is longer


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


class GateNorm(nn.Module):
    def __init__(self, told: Told, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), told["rms_norm_eps"]
        self.counts, self.scale = told.get("layernorm_gating_weight", 2.0), scale
        self.gate_up_projection, self.gate_down_projection = _linear(width, 16), _linear(16, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (1 + self.weight)
        gate = self.gate_down_projection(F.silu(self.gate_up_projection(rows)))
        return rows * self.counts * gate.sigmoid() * self.scale


class Opened(nn.Module):
    """The norm of a delta net's answer."""

    def __init__(self, told: Told, width: int) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(width)), told["rms_norm_eps"]
        self.added = float(told["linear_gating_type"].endswith("zero_centered"))
        self.scale = told.get("linear_sigmoid_gate_scale", 2.0)

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        rows = x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return rows * (self.weight + self.added) * gate.sigmoid() * self.scale


class Delta(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        names = ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim", "conv_kernel_dim")
        self.key_heads, self.heads, self.keys, self.values, taps = (told[f"linear_{one}"] for one in names)
        hidden, keys, values = told["hidden_size"], self.key_heads * self.keys, self.heads * self.values
        self.in_proj_qkvz = _linear(hidden, 2 * (keys + values))
        self.in_proj_ba, self.out_proj = _linear(hidden, 2 * self.heads), _linear(values, hidden)
        mixed = 2 * keys + values
        self.conv1d = nn.Conv1d(mixed, mixed, taps, groups=mixed, bias=False)
        self.A_log, self.dt_bias = (nn.Parameter(torch.zeros(self.heads)) for _ in range(2))
        self.norm = Opened(told, self.values)

    def _split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        each = self.heads // self.key_heads
        widths = [self.keys, self.keys, each * self.values, each * self.values]
        parts = self.in_proj_qkvz(x).unflatten(-1, (self.key_heads, -1)).split(widths, dim=-1)
        narrow = self.in_proj_ba(x).unflatten(-1, (self.key_heads, -1)).split(each, dim=-1)
        return (*(one.flatten(1) for one in parts), *(one.flatten(1) for one in narrow))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *mixed, z, strength, step = self._split(x)
        rows = F.pad(torch.cat(mixed, dim=-1).T, (self.conv1d.kernel_size[0] - 1, 0))
        seen = F.silu(self.conv1d(rows)).T.split([one.shape[1] for one in mixed], dim=-1)
        q, k = (
            _unit(one.unflatten(-1, (self.key_heads, -1))).repeat_interleave(self.heads // self.key_heads, 1)
            for one in seen[:2]
        )
        v, q = seen[2].unflatten(-1, (self.heads, -1)), q * self.keys**-0.5
        decay = torch.exp(-self.A_log.exp() * F.softplus(step + self.dt_bias))
        strength, state = strength.sigmoid(), x.new_zeros(self.heads, self.keys, self.values)
        answers = []
        for token in range(len(x)):
            state = state * decay[token][:, None, None]
            known = torch.einsum("hk,hkv->hv", k[token], state)
            written = strength[token][:, None] * (v[token] - known)
            state = state + torch.einsum("hk,hv->hkv", k[token], written)
            answers.append(torch.einsum("hk,hkv->hv", q[token], state))
        opened = self.norm(torch.stack(answers), z.unflatten(-1, (self.heads, -1)))
        return self.out_proj(opened.flatten(1))


class Latents(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, lora, self.heads = told["hidden_size"], told.get("q_lora_rank"), told["num_attention_heads"]
        self.rank, self.nope, self.rest, self.width = (
            told[one] for one in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        asked = self.heads * (self.nope + self.rest)
        scales = told.get("use_mla_scaling_factor", True)
        scaled = {rank: (hidden / rank) ** 0.5 if scales else 1.0 for rank in (lora, self.rank) if rank}
        self.is_narrow = bool(lora)
        if lora:
            self.q_a_proj, self.q_a_layernorm = _linear(hidden, lora), GateNorm(told, lora, scaled[lora])
            self.q_b_proj = _linear(lora, asked)
        else:
            self.q_proj = _linear(hidden, asked)
        self.kv_a_proj_with_mqa = _linear(hidden, self.rank + self.rest)
        self.kv_a_layernorm = GateNorm(told, self.rank, scaled[self.rank])
        self.kv_b_proj = _linear(self.rank, self.heads * (self.nope + self.width))
        self.o_proj = _linear(self.heads * self.width, hidden)
        is_gated = told.get("gated_attention", True)
        self.gate_proj = _linear(hidden, self.heads * self.width) if is_gated else None
        self.by_pairs = told.get("rope_interleave", True)
        with torch.device("cpu"):
            self.angles, self.length, self.scale = _angles(told, self.rest)
        self.scale *= (self.nope + self.rest) ** -0.5

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """[T, heads, D] by pairs of neighbours, or halves."""
        angles = self.angles.to(x.dtype)[: len(x), None]
        cos, sin = angles.cos() * self.length, angles.sin() * self.length
        one, other = (x[..., ::2], x[..., 1::2]) if self.by_pairs else x.chunk(2, dim=-1)
        pairs = one * cos - other * sin, other * cos + one * sin
        return torch.stack(pairs, dim=-1).flatten(-2) if self.by_pairs else torch.cat(pairs, dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if self.is_narrow else self.q_proj(x)
        q = q.unflatten(-1, (self.heads, -1))
        latent, rest = self.kv_a_proj_with_mqa(x).split([self.rank, self.rest], dim=-1)
        both = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (self.heads, -1))
        keys, values = both.split([self.nope, self.width], dim=-1)
        keys = torch.cat((keys, self._turned(rest[:, None]).expand(-1, self.heads, -1)), dim=-1)
        q = torch.cat((q[..., : self.nope], self._turned(q[..., self.nope :])), dim=-1)
        scores = torch.einsum("qhd,khd->hqk", q, keys) * self.scale
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        answer = torch.einsum("hqk,khd->qhd", shares, values).flatten(1)
        return self.o_proj(answer if self.gate_proj is None else answer * self.gate_proj(x).sigmoid())


def _angles(told: Told, width: int) -> tuple[torch.Tensor, float, float]:
    """Of each position, by transformers' yarn, if any; how long a turned value is; what scales scores."""
    from transformers import DeepseekV3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_get_mscale

    section = {**(told.get("rope_scaling") or {})}
    section["rope_type"] = section.pop("type", section.get("rope_type", "default"))
    section["rope_theta"] = told.get("rope_theta", 100000.0)
    made = DeepseekV3Config(
        rope_parameters=section,
        max_position_embeddings=told["max_position_embeddings"],
        qk_rope_head_dim=width,
        head_dim=width,
    )
    if section["rope_type"] != "yarn":
        rates = section["rope_theta"] ** -(torch.arange(0, width, 2) / width)
        return torch.arange(_ROWS)[:, None] * rates.double(), 1.0, 1.0
    rates, length = ROPE_INIT_FUNCTIONS["yarn"](made, torch.device("cpu"))
    scaled = yarn_get_mscale(section["factor"], section["mscale_all_dim"]) ** 2
    return torch.arange(_ROWS)[:, None] * rates.double(), length, scaled


class Layer(nn.Module):
    def __init__(self, told: Told, number: int) -> None:
        super().__init__()
        hidden, first = told["hidden_size"], told.get("first_k_dense_replace", 1)
        kinds, whole = told.get("layer_types"), told.get("full_attention_layers") or ()
        is_whole = number in whole if kinds is None else kinds[number] != "linear_attention"
        self.self_attn = Latents(told) if is_whole else Delta(told)
        is_routed = number >= first and number % told.get("moe_layer_freq", 1) == 0
        routed = _routed(told)
        self.mlp = Experts(routed) if is_routed else Gated(routed, hidden, told["intermediate_size"], _NAMES)
        names = ["input_layernorm", "post_attention_layernorm"]
        self.is_behind = told.get("layernorm_type", "pre_post") == "pre_post"
        names += ["post_self_attn_layernorm", "post_feedforward_layernorm"] if self.is_behind else []
        for name in names:
            setattr(self, name, GateNorm(told, hidden))

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        answer = self.self_attn(self.input_layernorm(x))
        x = x + (self.post_self_attn_layernorm(answer) if self.is_behind else answer)
        answer = self.mlp(self.post_attention_layernorm(x))
        return (x + (self.post_feedforward_layernorm(answer) if self.is_behind else answer))[None]


def _routed(told: Told) -> Told:
    """As Kimi K3's experts are told."""
    names = {
        "num_experts": "n_routed_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "num_expert_group": "n_group",
        "moe_renormalize": "norm_topk_prob",
    }
    same = ("hidden_size", "moe_intermediate_size", "topk_group", "routed_scaling_factor", "swiglu_limit")
    found = {name: told[other] for name, other in names.items() if other in told}
    usual = {"hidden_act": "silu", "num_shared_experts": 2, "routed_scaling_factor": 2.5}
    return {**usual, **{name: told[name] for name in same if name in told}, **found}


class _End(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.norm = GateNorm(told, told["hidden_size"])

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.norm(hidden_states)


def config(told: Told) -> Told:
    """Of a model whose layers and end are all replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    return {**{one: told[one] for one in sizes}, "tie_word_embeddings": False}


def alter(model: Any, told: Told, randomize: Callable[[nn.Module], None]) -> None:
    layers = (Layer(told, number) for number in range(told["num_hidden_layers"]))
    model.model.layers, model.model.norm = nn.ModuleList(layers), _End(told)
    for part in (model.model.layers, model.model.norm):
        randomize(part)
        part.requires_grad_(False)


def tensors(own: Mapping[str, torch.Tensor], told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in own.items():
        for ours, theirs in zip(("w1", "w3", "w2"), _NAMES, strict=True):
            name = name.replace(f".{ours}.", f".{theirs}.")
        yield name.replace("model.norm.norm.", "model.norm."), tensor
