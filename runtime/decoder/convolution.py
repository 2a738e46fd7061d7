"""The short convolution before a recurrence."""

from collections.abc import Sequence

import torch
from torch import nn

from runtime.decoder.build import Build
from runtime.layers.loading import length
from runtime.layers.recurrence import Rows, causal_conv


class Convolution(nn.Module):
    """A convolution per channel, then silu. `blocks` are the checkpoint's channels that this rank holds."""

    def __init__(
        self, build: Build, name: str, blocks: Sequence[slice], width: int, bias: bool = False
    ) -> None:
        super().__init__()
        self.name, self.blocks = name, blocks
        channels = sum(length(block) for block in blocks)
        weight = torch.empty(channels, width, dtype=build.dtype, device=build.device)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = build.vector(channels) if bias else None

    def forward(self, x: torch.Tensor, state: torch.Tensor, rows: Rows) -> torch.Tensor:
        return causal_conv(x, self.weight, self.bias, state, rows)
