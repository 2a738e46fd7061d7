"""SigLIP as Gemma 3 has it (srt/models/siglip.py, gemma3_mm.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    row,
    vocabulary,
    whole,
)
from runtime.server.errors import ConfigError

_DEFAULTS = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 16,
}  # fmt: skip


def gemma3(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width = v.size("hidden_size")
    yield from _tower(v)
    yield from whole("multi_modal_projector.mm_input_projection_weight", width, text_width)
    yield from whole("multi_modal_projector.mm_soft_emb_norm.weight", width)


def _tower(v: Section) -> Weights:
    width, inner, side = v.size("hidden_size"), v.size("intermediate_size"), v.size("patch_size")
    yield from whole("embeddings.patch_embedding.weight", width, v.size("num_channels"), side, side)
    yield from whole("embeddings.patch_embedding.bias", width)
    patches = v.size("image_size") // side
    if not patches:
        raise ConfigError(f"config.json: vision_config: no patch of {side} fits into an image")
    yield from vocabulary("embeddings.position_embedding", patches**2, width)
    yield from layers(
        "encoder.layers",
        v.size("num_hidden_layers"),
        chain(
            layer_norm("layer_norm1", width),
            layer_norm("layer_norm2", width),
            attention(width, v.size("num_attention_heads")),
            column("mlp.fc1", inner, width),
            row("mlp.fc2", width, inner),
        ),
    )
    yield from layer_norm("post_layernorm", width)
