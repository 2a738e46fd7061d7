"""The tower of ERNIE 4.5 VL and its resampler (srt/models/ernie45_vl.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    block,
    column,
    layer_norm,
    layers,
    linear,
    named,
    rms_norm,
)
from runtime.server.errors import ConfigError

# The class in a file of its checkpoints has these; what SGLang calls in_chans is told, or is missing.
_DEFAULTS = {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "patch_size": 14}
_WHOLE = {"use_temporal_conv": True}


def ernie_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width = v.size("embed_dim")
    yield from linear(
        "vision_model.patch_embed.proj", width, v.size("in_chans") * v.size("patch_size") ** 2, bias=False
    )
    yield from layers("vision_model.blocks", v.size("depth"), _block(v, width))
    yield from layer_norm("vision_model.ln", v.size("hidden_size"))
    yield from named("resampler_model", _resampler(Section(hf, "", _WHOLE), text_width))


def _block(v: Section, width: int) -> Weights:
    ratio = v.get("mlp_ratio")
    if not isinstance(ratio, (int, float)) or not 1 <= ratio * width < 1 << 24:
        raise ConfigError(f"{v.where}mlp_ratio is {ratio!r:.60}: a positive number is needed")
    inner = int(ratio * width)
    return block(width, v.size("num_heads"), inner)


def _resampler(w: Section, text_width: int) -> Weights:
    merged = w.size("pixel_hidden_size") * w.size("spatial_conv_size") ** 2
    yield from _joined("spatial", merged, merged)
    if w.flag("use_temporal_conv"):
        yield from _joined("temporal", merged, merged * w.size("temporal_conv_size"))
    yield from column("mlp", text_width, merged)
    yield from rms_norm("after_norm", text_width)


def _joined(name: str, width: int, read: int) -> Weights:
    yield from column(f"{name}_linear1", width, read)
    yield from column(f"{name}_linear2", width, width)
    yield from layer_norm(f"{name}_norm", width)
