"""The short convolution before a recurrence."""

from __future__ import annotations

import torch
from torch import nn

from runtime.decoder.build import Build
from runtime.layers.recurrence import Rows, causal_conv


class Convolution(nn.Module):
    """A convolution per channel, then silu."""

    def __init__(self, build: Build, channels: int, width: int, bias: bool = False) -> None:
        super().__init__()
        weight = torch.empty(channels, width, dtype=build.dtype, device=build.device)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = build.vector(channels) if bias else None

    def forward(self, x: torch.Tensor, state: torch.Tensor, rows: Rows) -> torch.Tensor:
        return causal_conv(x, self.weight, self.bias, state, rows)
