"""What references have in common whose family transformers has no class for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

Told = dict[str, Any]
Tensors = Mapping[str, torch.Tensor]
Randomize = Callable[[torch.nn.Module], None]


class Norm(nn.Module):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(told["hidden_size"])), told["rms_norm_eps"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight


def shared(told: Told) -> Told:
    """Sizes by the same names in all classes, and the rope that SGLang reads out of three places."""
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    more = (
        "intermediate_size",
        "max_position_embeddings",
        "rms_norm_eps",
        "tie_word_embeddings",
        "hidden_act",
    )
    return {one: told[one] for one in (*names, *more) if one in told}


def each_expert(stem: str, kind: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    names = ("gate_proj", "up_proj") if kind == "gate_up_proj" else (kind,)
    for number, expert in enumerate(tensor):
        for name, half in zip(names, expert.chunk(len(names)), strict=True):
            yield f"{stem}.{number}.{name}.weight", half.clone()


def joined(found: Tensors) -> Iterator[tuple[str, torch.Tensor]]:
    """Queries, keys and values are one matrix, which is called as that of queries."""
    for name, tensor in found.items():
        if ".q_proj" in name:
            yield name, torch.cat([found[name.replace(".q_proj", f".{one}_proj")] for one in "qkv"])
        elif ".k_proj" not in name and ".v_proj" not in name:
            yield name, tensor


def renamed(name: str, names: Mapping[str, str]) -> str:
    for own, theirs in names.items():
        name = name.replace(own, theirs)
    return name
