"""Kimi K3's layers as SGLang's class has them, each the plain sum that it stands for: whole texts alone, and
nothing is kept of them.

srt/models/kimi_k3.py, srt/layers/attn_residual.py, srt/layers/activation.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Told = dict[str, Any]
DELTA_EPS = 1e-5


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class Delta(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        own, hidden = told["linear_attn_config"], told["hidden_size"]
        self.heads, self.width = own["num_heads"], own["head_dim"]
        self.bound, self.is_whole = own.get("gate_lower_bound"), own.get("use_full_rank_gate", False)
        inner, taps = self.heads * self.width, own["short_conv_kernel_size"]
        for one in "qkv":
            setattr(self, f"{one}_proj", _linear(hidden, inner))
            setattr(self, f"{one}_conv1d", nn.Conv1d(inner, inner, taps, groups=inner, bias=False))
        self.b_proj, self.f_a_proj = _linear(hidden, self.heads), _linear(hidden, self.width)
        self.f_b_proj, self.o_proj = _linear(self.width, inner), _linear(inner, hidden)
        if self.is_whole:
            self.g_proj = _linear(hidden, inner)
        else:
            self.g_a_proj, self.g_b_proj = _linear(hidden, self.width), _linear(self.width, inner)
        self.A_log, self.dt_bias = nn.Parameter(torch.zeros(self.heads)), nn.Parameter(torch.zeros(inner))
        self.o_norm = Norm(self.width, DELTA_EPS)

    def _seen(self, x: torch.Tensor, one: str) -> torch.Tensor:
        conv = getattr(self, f"{one}_conv1d")
        rows = F.pad(getattr(self, f"{one}_proj")(x).T, (conv.kernel_size[0] - 1, 0))
        return F.silu(conv(rows)).T.unflatten(-1, (self.heads, self.width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self._seen(x, one) for one in "qkv")
        q, k = _unit(q) * self.width**-0.5, _unit(k)
        step = (self.f_b_proj(self.f_a_proj(x)) + self.dt_bias).unflatten(-1, (self.heads, self.width))
        rate = self.A_log.exp()[:, None]
        if self.bound is None:
            decay = torch.exp(-rate * F.softplus(step))
        else:
            decay = torch.exp(self.bound * torch.sigmoid(rate * step))
        strength, state = self.b_proj(x).sigmoid(), x.new_zeros(self.heads, self.width, self.width)
        rows = []
        for token in range(len(x)):
            state = state * decay[token][..., None]
            known = torch.einsum("hk,hkv->hv", k[token], state)
            state = state + torch.einsum(
                "hk,hv->hkv", k[token], strength[token][:, None] * (v[token] - known)
            )
            rows.append(torch.einsum("hk,hkv->hv", q[token], state))
        gate = self.g_proj(x) if self.is_whole else self.g_b_proj(self.g_a_proj(x))
        opened = self.o_norm(torch.stack(rows)) * gate.sigmoid().unflatten(-1, (self.heads, self.width))
        return self.o_proj(opened.flatten(1))


class Latents(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, eps, lora = told["hidden_size"], told["rms_norm_eps"], told.get("q_lora_rank")
        self.heads, self.rank = told["num_attention_heads"], told["kv_lora_rank"]
        self.nope, self.rest, self.width = (
            told[one] for one in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        asked = self.heads * (self.nope + self.rest)
        self.is_narrow = lora is not None
        if lora is not None:
            self.q_a_proj, self.q_a_layernorm = _linear(hidden, lora), Norm(lora, eps)
            self.q_b_proj = _linear(lora, asked)
        else:
            self.q_proj = _linear(hidden, asked)
        self.kv_a_proj_with_mqa = _linear(hidden, self.rank + self.rest)
        self.kv_a_layernorm = Norm(self.rank, eps)
        self.kv_b_proj = _linear(self.rank, self.heads * (self.nope + self.width))
        self.o_proj = _linear(self.heads * self.width, hidden)
        self.g_proj = _linear(hidden, self.heads * self.width) if told.get("mla_use_output_gate") else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if self.is_narrow else self.q_proj(x)
        q = q.unflatten(-1, (self.heads, -1))
        latent, rest = self.kv_a_proj_with_mqa(x).split([self.rank, self.rest], dim=-1)
        both = self.kv_b_proj(self.kv_a_layernorm(latent)).unflatten(-1, (self.heads, -1))
        keys, values = both.split([self.nope, self.width], dim=-1)
        keys = torch.cat((keys, rest[:, None].expand(-1, self.heads, -1)), dim=-1)
        scores = torch.einsum("qhd,khd->hqk", q, keys) * q.shape[-1] ** -0.5
        unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
        shares = scores.masked_fill(unseen, float("-inf")).softmax(-1)
        answer = torch.einsum("hqk,khd->qhd", shares, values).flatten(1)
        return self.o_proj(answer if self.g_proj is None else answer * self.g_proj(x).sigmoid())


class Gated(nn.Module):
    def __init__(self, told: Told, width: int, inner: int, names: tuple[str, str, str]) -> None:
        super().__init__()
        for name, sizes in zip(names, ((width, inner), (width, inner), (inner, width)), strict=True):
            setattr(self, name, _linear(*sizes))
        self.names, self.is_situ = names, told["hidden_act"] == "situ"
        self.height, self.ups = told.get("activation_situ_beta"), told.get("activation_situ_linear_beta")
        self.cap = told.get("swiglu_limit")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up, down = (getattr(self, name) for name in self.names)
        opens, ups = gate(x), up(x)
        if self.cap:
            opens, ups = opens.clamp(max=self.cap), ups.clamp(-self.cap, self.cap)
        if not self.is_situ:
            return down(F.silu(opens) * ups)
        if self.ups is not None:
            ups = self.ups * torch.tanh(ups / self.ups)
        return down(self.height * torch.tanh(opens / self.height) * opens.sigmoid() * ups)


class Experts(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        hidden, inner, latent = (
            told["hidden_size"],
            told["moe_intermediate_size"],
            told.get("routed_expert_hidden_size"),
        )
        self.told, count = told, told["num_experts"]
        self.gate = _linear(hidden, count)
        self.gate.register_parameter("e_score_correction_bias", nn.Parameter(torch.zeros(count)))
        self.experts = nn.ModuleList(
            Gated(told, latent or hidden, inner, ("w1", "w3", "w2")) for _ in range(count)
        )
        shared = inner * told.get("num_shared_experts", 0)
        names = ("gate_proj", "up_proj", "down_proj")
        self.shared_experts = Gated(told, hidden, shared, names) if shared else None
        if latent:
            self.routed_expert_down_proj, self.routed_expert_up_proj = (
                _linear(hidden, latent),
                _linear(latent, hidden),
            )
        self.routed_expert_norm = (
            Norm(latent, told["rms_norm_eps"]) if latent and told.get("latent_moe_use_norm") else None
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.routed_expert_down_proj(x) if hasattr(self, "routed_expert_down_proj") else x
        scores = self.gate(x).sigmoid()
        choice = scores + self.gate.e_score_correction_bias
        groups = self.told.get("num_expert_group", 1)
        if groups > 1:
            each = choice.unflatten(-1, (groups, -1))
            best = each.topk(2, dim=-1).values.sum(-1).topk(self.told["topk_group"], dim=-1).indices
            is_in = torch.zeros(len(x), groups, dtype=torch.bool).scatter_(1, best, True)
            choice = each.masked_fill(~is_in[..., None], float("-inf")).flatten(1)
        chosen = choice.topk(self.told["num_experts_per_token"], dim=-1).indices
        shares = scores.gather(1, chosen)
        if self.told.get("moe_renormalize", True):
            shares = shares / shares.sum(-1, keepdim=True)
        shares = shares * self.told.get("routed_scaling_factor", 1.0)
        answers = torch.stack([expert(rows) for expert in self.experts], dim=1)
        picked = answers.gather(1, chosen[..., None].expand(-1, -1, rows.shape[-1]))
        routed = (picked * shares[..., None]).sum(1)
        if self.routed_expert_norm is not None:
            routed = self.routed_expert_norm(routed)
        if hasattr(self, "routed_expert_up_proj"):
            routed = self.routed_expert_up_proj(routed)
        return routed if self.shared_experts is None else routed + self.shared_experts(x)


class Read(nn.Module):
    """What is read of all that was kept, and of the last."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self.norm = Norm(told["hidden_size"], told["rms_norm_eps"])
        self.proj = _linear(told["hidden_size"], 1)

    def forward(self, last: torch.Tensor, kept: list[torch.Tensor]) -> torch.Tensor:
        if not kept:
            return last
        rows = torch.stack([*kept, last], dim=1)
        return (self.proj(self.norm(rows)).softmax(1) * rows).sum(1)


class Layer(nn.Module):
    """`kept` is one list, of all layers and of the end."""

    def __init__(self, told: Told, number: int, kept: list[torch.Tensor]) -> None:
        super().__init__()
        self.number, self.kept, self.every = number, kept, told.get("attn_res_block_size")
        hidden, eps = told["hidden_size"], told["rms_norm_eps"]
        is_delta = number + 1 in told["linear_attn_config"]["kda_layers"]
        self.self_attn = Delta(told) if is_delta else Latents(told)
        first, every = told.get("first_k_dense_replace", 0), told.get("moe_layer_freq", 1)
        names = ("gate_proj", "up_proj", "down_proj")
        is_routed = told.get("num_experts") and number >= first and number % every == 0
        self.mlp = Experts(told) if is_routed else Gated(told, hidden, told["intermediate_size"], names)
        self.input_layernorm, self.post_attention_layernorm = Norm(hidden, eps), Norm(hidden, eps)
        if self.every:
            self.self_attention_res, self.mlp_res = Read(told), Read(told)

    def forward(self, hidden_states: torch.Tensor, **_: Any) -> torch.Tensor:
        (x,) = hidden_states
        if not self.every:
            x = x + self.self_attn(self.input_layernorm(x))
            return (x + self.mlp(self.post_attention_layernorm(x)))[None]
        if self.number == 0:
            self.kept.clear()
        answer = self.self_attn(self.input_layernorm(self.self_attention_res(x, self.kept)))
        if self.number % self.every == 0:
            self.kept.append(x)
            x = answer
        else:
            x = x + answer
        return (x + self.mlp(self.post_attention_layernorm(self.mlp_res(x, self.kept))))[None]


class End(nn.Module):
    def __init__(self, told: Told, kept: list[torch.Tensor]) -> None:
        super().__init__()
        self.kept, self.norm = kept, Norm(told["hidden_size"], told["rms_norm_eps"])
        self.output_attn_res = Read(told) if told.get("attn_res_block_size") else None

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        (x,) = hidden_states
        return self.norm(x if self.output_attn_res is None else self.output_attn_res(x, self.kept))[None]


def config(told: Told) -> Told:
    """Of a model whose layers and end are all replaced."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {
        **{one: told[one] for one in sizes},
        "num_local_experts": 1,
        "pad_token_id": None,
        "use_cache": False,
    }


def alter(model: Any, told: Told, randomize: Callable[[nn.Module], None]) -> None:
    kept: list[torch.Tensor] = []
    layers = (Layer(told, number, kept) for number in range(told["num_hidden_layers"]))
    model.model.layers, model.model.norm = nn.ModuleList(layers), End(told, kept)
    for part in (model.model.layers, model.model.norm):
        randomize(part)
        part.requires_grad_(False)


def tensors(own: Mapping[str, torch.Tensor], told: Told) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in own.items():
        for place in ("_res.norm", "_res.proj"):
            name = name.replace(place, place.replace(".", "_"))
        yield name.replace("norm.norm.", "norm.").replace("norm.output_", "output_"), tensor
