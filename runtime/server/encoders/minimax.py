"""The CLIP of MiniMax-M3 (srt/models/minimax_vl_common.py), split over the ranks that share attention."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    over_attention_ranks,
    row,
    whole,
)
from runtime.server.errors import Unsupported

_SQUEEZES = "img_token_compression_config"
_SQUEEZED = {"temporal_patch_size": 2, "spatial_merge_size": 2}
# Of SGLang's own reading, which has no defaults: what it asks for, and what may be anything.
_ONLY: Mapping[str, Any] = {"position_embedding_type": "rope", "rope_mode": "3d", "hidden_act": "gelu"}
_NEEDED = (_SQUEEZES, "image_size", "layer_norm_eps", "vision_segment_max_frames")
_BIASES = {"multimodal_projector_bias": True, "patch_merge_bias": True}


def minimax_m3(hf: Mapping[str, Any], text_width: int) -> Weights:
    v, beside = Section(hf), Section(hf, "", _BIASES)
    told = hf.get("vision_config") or {}
    _check(told)
    width, side = v.size("hidden_size"), v.size("patch_size")
    squeezed = Section(told, _SQUEEZES, _SQUEEZED)
    frames = squeezed.size("temporal_patch_size")
    yield from whole("embeddings.patch_embedding.weight", width, v.size("num_channels"), frames, side, side)
    yield from layer_norm("pre_layrnorm", width)
    yield from layers("encoder.layers", v.size("num_hidden_layers"), over_attention_ranks(_layer(v, width)))
    yield from layer_norm("post_layernorm", width)
    inner = (
        text_width if beside.get("projector_hidden_size") is None else beside.size("projector_hidden_size")
    )
    merged = text_width * squeezed.size("spatial_merge_size") ** 2
    yield from _projector(
        "multi_modal_projector", width, inner, text_width, beside, "multimodal_projector_bias"
    )
    yield from _projector("patch_merge_mlp", merged, inner, text_width, beside, "patch_merge_bias")


def _check(told: Mapping[str, Any]) -> None:
    """Where these are not so, SGLang's server ends."""
    for name, served in _ONLY.items():
        if told.get(name) != served:
            found = repr(told.get(name))[:60]
            raise Unsupported(f"config.json: vision_config: {name} is {found}: SGLang has {served!r} alone")
    based = "rope_theta" in told or isinstance(told.get("rope_parameters"), Mapping)
    for name in (*(one for one in _NEEDED if one not in told), *(() if based else ("rope_theta",))):
        raise Unsupported(f"config.json: vision_config has no {name}: SGLang reads it there")


def _layer(v: Section, width: int) -> Weights:
    inner = v.size("intermediate_size")
    return chain(
        attention(width, v.size("num_attention_heads")),
        layer_norm("layer_norm1", width),
        column("fc1", inner, width),
        row("fc2", width, inner),
        layer_norm("layer_norm2", width),
    )


def _projector(name: str, read: int, inner: int, given: int, beside: Section, bias: str) -> Weights:
    has_bias = beside.flag(bias)
    parts: Iterable[Any] = chain(
        column(f"{name}.linear_1", inner, read, has_bias), row(f"{name}.linear_2", given, inner, has_bias)
    )
    return over_attention_ranks(parts)
