"""Queries that grow with their position: how many times a token's are as large, in either attention."""

from __future__ import annotations

import torch

from runtime.server.layer_config import FloorGrowth, Growth, PowerGrowth


def grow_(queries: torch.Tensor, growth: Growth | PowerGrowth | FloorGrowth, positions: torch.Tensor) -> None:
    if isinstance(growth, FloorGrowth):
        times = ((positions + 1).float() / growth.floor).clamp_(min=1).log_().mul_(growth.strength).add_(1)
        queries.copy_(queries.float() * times[:, None, None])
        return
    steps = (positions + growth.shift).float() / growth.length
    if isinstance(growth, PowerGrowth):
        queries.mul_((steps.log1p_() * growth.power).exp_()[:, None, None])
    else:
        queries.mul_((steps.floor_().log1p_() * growth.strength + 1)[:, None, None].to(queries.dtype))
