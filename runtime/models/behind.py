"""Norms behind attention and behind an MLP: they alone go on, of what was given with what was answered."""

from __future__ import annotations

from runtime.models.build import Build
from runtime.models.entered import ReplacingNorms
from runtime.models.sublayer import SublayerNorms


def behind_attention(build: Build, layer_id: int) -> SublayerNorms:
    """It is entered by the norm behind the layer before, and the first is by none."""
    if layer_id == 0:
        return SublayerNorms(None, None)
    return ReplacingNorms(build.norm_of_rows(norm_behind(build, layer_id - 1)), None)


def behind_mlp(build: Build, layer_id: int) -> SublayerNorms:
    name = build.model.layer_name(layer_id)
    return ReplacingNorms(build.norm_of_rows(f"{name}.{_names(build)[0]}"), None)


def norm_behind(build: Build, layer_id: int) -> str:
    return f"{build.model.layer_name(layer_id)}.{_names(build)[1]}"


def _names(build: Build) -> tuple[str, str]:
    """Of that behind attention, and of that behind the MLP."""
    if build.model.added is not None:
        return "attention.output.LayerNorm", "output.LayerNorm"
    return "self_attn_layer_norm", "final_layer_norm"
