"""A router that norms its rows itself, and whose experts each count by a number of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn

from runtime.devices.graph_break import fused_in_a_server
from runtime.layers.loading import Piece, Source
from runtime.layers.norm import rms_norm
from runtime.moe.router import Router
from runtime.moe.weights import TopK
from runtime.server.layer_config import MoEConfig


class NormedRouter(Router):
    """Its norm has no weights: those it runs with are a scale a column, over the root of the width."""

    def __init__(
        self, name: str, hidden: int, moe: MoEConfig, dtype: torch.dtype, device: torch.device, eps: float
    ) -> None:
        super().__init__((f"{name}.proj",), hidden, moe, dtype, device)
        self.name, self.eps = name, eps
        self.scale, self.expert_scale = (
            nn.Parameter(torch.empty(size, dtype=dtype, device=device), requires_grad=False)
            for size in (hidden, moe.num_experts)
        )
        self.register_buffer("norm_weight", torch.ones(hidden, dtype=dtype, device=device))

    norm_weight: torch.Tensor

    def finish(self) -> None:
        self.norm_weight.copy_(self.scale * self.scale.shape[0] ** -0.5)

    def forward(self, x: torch.Tensor) -> TopK:
        chosen = super().forward(rms_norm(x, self.norm_weight, self.eps))
        with fused_in_a_server():
            counted = chosen.weights * self.expert_scale[chosen.ids.long()].to(chosen.weights.dtype)
        return replace(chosen, weights=counted)

    def pieces(self) -> Iterator[Piece]:
        yield from super().pieces()
        yield Piece(self.scale, (Source(f"{self.name}.scale"),))
        yield Piece(self.expert_scale, (Source(f"{self.name}.per_expert_scale"),))
