"""Llama 4's vision tower (srt/models/mllama4.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, attention, column, layer_norm, layers, linear, row, whole

_DEFAULTS = {
    "hidden_size": 768, "num_hidden_layers": 34, "num_attention_heads": 16, "num_channels": 3,
    "intermediate_size": 5632, "vision_output_dim": 7680, "image_size": 448, "patch_size": 14,
    "projector_input_dim": 4096, "projector_output_dim": 4096,
}  # fmt: skip


def llama4(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width, inner, side = v.size("hidden_size"), v.size("intermediate_size"), v.size("patch_size")
    yield from column("patch_embedding.linear", width, v.size("num_channels") * side**2, bias=False)
    yield from whole("class_embedding", width)
    yield from whole("positional_embedding_vlm", (v.size("image_size") // side) ** 2 + 1, width)
    for name in ("layernorm_pre", "layernorm_post"):
        yield from layer_norm(name, width)
    yield from layers(
        "model.layers",
        v.size("num_hidden_layers"),
        chain(
            attention(width, v.size("num_attention_heads")),
            column("mlp.fc1", inner, width),
            row("mlp.fc2", width, inner),
            layer_norm("input_layernorm", width),
            layer_norm("post_attention_layernorm", width),
        ),
    )
    bias, middle = v.flag("multi_modal_projector_bias"), v.size("projector_input_dim")
    yield from column("vision_adapter.mlp.fc1", middle, inner, bias)
    yield from row("vision_adapter.mlp.fc2", v.size("projector_output_dim"), middle, bias)
    yield from linear("multi_modal_projector.linear_1", text_width, v.size("vision_output_dim"), bias=False)
