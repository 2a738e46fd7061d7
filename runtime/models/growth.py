"""Queries that grow with their position: how many times a token's are as large, in either attention."""

from __future__ import annotations

import torch

from runtime.server.layer_config import Growth


def grown(growth: Growth, positions: torch.Tensor) -> torch.Tensor:
    steps = ((positions + growth.shift).float() / growth.length).floor_()
    return (steps.log1p_() * growth.strength + 1)[:, None, None]
