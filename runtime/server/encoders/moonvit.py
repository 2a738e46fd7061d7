"""MoonViT as Kimi-K2.5 has it (srt/models/kimi_k25.py), heads split, what follows them whole; and as Kimi-VL
does (kimi_vl_moonvit.py), both split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    linear,
    over_attention_ranks,
    row,
    whole,
)

_DEFAULTS = {
    "patch_size": 14, "init_pos_emb_height": 64, "init_pos_emb_width": 64, "vt_num_attention_heads": 16,
    "vt_num_hidden_layers": 27, "vt_hidden_size": 1152, "vt_intermediate_size": 4304,
    "merge_kernel_size": 2,
}  # fmt: skip


def kimi_k25(hf: Mapping[str, Any], text_width: int) -> Weights:
    return _tower(hf, text_width, _whole_mlp)


def kimi_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    return _tower(hf, text_width, _split_mlp)


def _tower(hf: Mapping[str, Any], text_width: int, mlp: Callable[[int, int], Weights]) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width, inner = (
        v.size("vt_hidden_size", "hidden_size"),
        v.size("vt_intermediate_size", "intermediate_size"),
    )
    patch, merged = v.size("patch_size"), width * v.size("merge_kernel_size") ** 2
    yield from whole("patch_embed.proj.weight", width, 3, patch, patch)
    yield from whole("patch_embed.proj.bias", width)
    grid = (v.size(f"init_pos_emb_{side}", f"pos_emb_{side}") for side in ("height", "width"))
    yield from whole("patch_embed.pos_emb.weight", *grid, width)
    yield from layers(
        "encoder.blocks",
        v.size("vt_num_hidden_layers", "num_hidden_layers"),
        chain(
            layer_norm("norm0", width),
            layer_norm("norm1", width),
            mlp(width, inner),
            attention(width, v.size("vt_num_attention_heads", "num_attention_heads")),
        ),
    )
    yield from layer_norm("encoder.final_layernorm", width)
    yield from layer_norm("mm_projector.pre_norm", width)
    yield from linear("mm_projector.linear_1", merged, merged)
    yield from linear("mm_projector.linear_2", text_width, merged)


def _whole_mlp(width: int, inner: int) -> Weights:
    yield from linear("mlp.fc0", inner, width)
    yield from linear("mlp.fc1", width, inner)


def _split_mlp(width: int, inner: int) -> Weights:
    yield from over_attention_ranks(chain(column("mlp.fc0", inner, width), row("mlp.fc1", width, inner)))
