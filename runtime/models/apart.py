"""Norms of layers that add each answer to their rows as soon as it is there, in rows of their own."""

from __future__ import annotations

import torch

from runtime.models.build import Build
from runtime.models.sublayer import SublayerNorms, around_attention, around_mlp


class AddingNorms(SublayerNorms):
    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        rows = hidden if residual is None else hidden + residual
        return super().enter(rows, None)


def apart_attention(build: Build, layer_id: int) -> AddingNorms:
    norms = around_attention(build, build.model.layer_name(layer_id))
    assert isinstance(norms, SublayerNorms)
    return AddingNorms(norms.before, norms.after)


def apart_mlp(build: Build, layer_id: int) -> AddingNorms:
    norms = around_mlp(build, build.model.layer_name(layer_id))
    assert norms is not None
    return AddingNorms(norms.before, norms.after)
