"""Mllama's vision tower: a transformer over tiles, and a second, behind gates, over what it made of them
(srt/models/mllama.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, block, column, layer_norm, layers, linear, named, whole
from runtime.server.errors import Unsupported

_HEADS, _RATIOS = ("attention_heads", "num_attention_heads"), "supported_aspect_ratios"
_DEFAULTS = {
    "hidden_size": 1280, "num_hidden_layers": 32, "num_global_layers": 8, "attention_heads": 16,
    "num_channels": 3, "intermediate_size": 5120, "vision_output_dim": 7680, "image_size": 448,
    "patch_size": 14, "max_num_tiles": 4,
    _RATIOS: [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]],
}  # fmt: skip
_KNOWN = {"model_type": "mllama_vision_model", "hidden_act": "gelu"}


def mllama(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Attention has biases, which no checkpoint has."""
    v = _section(hf)
    width, side, tiles = v.size("hidden_size"), v.size("patch_size"), v.size("max_num_tiles")
    ratios, patches = v.count_of(_RATIOS) + 1, (v.size("image_size") // side) ** 2 + 1
    layer = width, v.size(*_HEADS), v.size("intermediate_size")
    tower = chain(
        column("patch_embedding._linear", width, v.size("num_channels") * side**2, bias=False),
        whole("class_embedding", width),
        whole("gated_positional_embedding.embedding", patches, width),
        whole("gated_positional_embedding.gate", 1),
        whole("gated_positional_embedding.tile_embedding.weight", ratios, tiles * patches * width),
        _of_ratios("pre_tile_positional_embedding", ratios, tiles * width),
        _of_ratios("post_tile_positional_embedding", ratios, tiles * width),
        layer_norm("layernorm_pre", width),
        layer_norm("layernorm_post", width),
        layers("transformer.layers", v.size("num_hidden_layers"), block(*layer)),
        layers("global_transformer.layers", v.size("num_global_layers"), chain(block(*layer), _gates())),
    )
    yield from named("vision_model", tower)
    yield from linear("multi_modal_projector", text_width, v.size("vision_output_dim"))


def _section(hf: Mapping[str, Any]) -> Section:
    v = Section(hf, defaults=_DEFAULTS)
    for name, known in _KNOWN.items():
        if v.get(name) not in (None, known):
            raise Unsupported(
                f"{v.where}{name} is {v.get(name)!r:.60}: SGLang's tower is known here by {known}"
            )
    one, other = (Section(hf).get(name) for name in _HEADS)
    if None not in (one, other) and one != other:
        raise Unsupported(f"{v.where}{_HEADS[0]} is {one!r:.60}, and {_HEADS[1]} {other!r:.60}")
    if isinstance(v.get("image_size"), list):
        raise Unsupported(f"{v.where}image_size is {v.get('image_size')!r:.60}: SGLang divides a number")
    return v


def _of_ratios(name: str, ratios: int, width: int) -> Weights:
    yield from whole(f"{name}.embedding.weight", ratios, width)
    yield from whole(f"{name}.gate", 1)


def _gates() -> Weights:
    yield from whole("gate_attn", 1)
    yield from whole("gate_ffn", 1)
