"""Norms of EAGLE's drafts, whose first layer attends to the row as it is given."""

from __future__ import annotations

from runtime.models.build import Build
from runtime.models.sublayer import SublayerNorms


def late_attention(build: Build, layer_id: int) -> SublayerNorms:
    name = f"{build.model.layer_name(layer_id)}.input_layernorm"
    return SublayerNorms(build.norm_of_rows(name) if layer_id else None, None)
