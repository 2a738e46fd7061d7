"""Norms of layers that add to what their first norm made, of which the first layer adds to the rows."""

from __future__ import annotations

import torch

from runtime.models.build import Build, RowNorm
from runtime.models.sublayer import SublayerNorms


class ReplacingNorms(SublayerNorms):
    """What goes in is what is added to, too."""

    def enter(self, hidden: torch.Tensor, residual: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        row, _ = super().enter(hidden, residual)
        return row, row


def entered_attention(build: Build, layer_id: int) -> SublayerNorms:
    kind = ReplacingNorms if layer_id else SublayerNorms
    before, after = (_norm(build, layer_id, one) for one in ("attention_norm", "attn_out_norm"))
    return kind(before, after, _scales(build, layer_id)[0])


def entered_mlp(build: Build, layer_id: int) -> SublayerNorms:
    after = None if layer_id else _norm(build, layer_id, "ffn_out_norm")
    before = _norm(build, layer_id, "feed_forward_norm")
    return SublayerNorms(before, after, _scales(build, layer_id)[1])


def _norm(build: Build, layer_id: int, name: str) -> RowNorm:
    return build.norm_of_rows(f"{build.model.layer_name(layer_id)}.{name}")


def _scales(build: Build, layer_id: int) -> tuple[float, float]:
    assert build.model.entry is not None
    return build.model.entry.of(layer_id)
