"""Muse Glimmer's tower, and what joins it to text (srt/models/muse_glimmer.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.decoders.muse_glimmer import OF_SGLANG
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    block,
    column,
    layer_norm,
    layers,
    linear,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_DEFAULTS = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 50, "num_attention_heads": 16,
    "patch_size": 14, "patch_temporal": 2, "pos_emb_height": 32, "pos_emb_width": 32,
}  # fmt: skip
_BESIDE = {"out_hidden_size": 6144, "projector_hidden_size": 4096}
_COLOURS = 3
_ASKED = ("rope_parameters", "layer_types")


def muse_glimmer(hf: Mapping[str, Any], text_width: int) -> Weights:
    _check(hf)
    v, beside = Section(hf, defaults=_DEFAULTS), Section(hf, "", _BESIDE)
    width, inner = v.size("hidden_size"), v.size("intermediate_size")
    heads = v.size("num_attention_heads")
    if width % heads or v.get("head_dim") not in (None, width // heads):
        raise ConfigError(f"{v.where}heads of {width}: releases of SGLang differ in their width")
    taken = v.size("patch_temporal") * _COLOURS * v.size("patch_size") ** 2
    yield from linear("vision_tower.patch_embedder.patch_embedding", width, taken, bias=False)
    places = v.size("pos_emb_height") * v.size("pos_emb_width")
    yield from whole("vision_tower.patch_embedder.position_embedding_table.weight", places, width)
    yield from layer_norm("vision_tower.ln_pre", width)
    yield from layers(
        "vision_tower.layers",
        v.size("num_hidden_layers"),
        block(width, heads, inner),
    )
    yield from layer_norm("vision_tower.ln_post", width)
    joined = beside.size("projector_hidden_size")
    yield from column("vision_adapter.fc1", joined, beside.size("out_hidden_size"), bias=False)
    yield from row("vision_adapter.fc2", joined, joined, bias=False)
    yield from linear("vision_projection", text_width, joined, bias=False)


def _check(hf: Mapping[str, Any]) -> None:
    """What SGLang asks for, and what it takes of the whole file where its text does not say."""
    found = hf.get("vision_config")
    if found is None:
        raise Unsupported("config.json: muse_glimmer without a vision_config: SGLang ends without one")
    for name in _ASKED:
        if isinstance(found, Mapping) and found.get(name) is None:
            raise Unsupported(f"config.json: vision_config: {name} is missing: SGLang asks for it")
    for name, value in OF_SGLANG.items():
        if hf.get(name, value) is not value:
            raise Unsupported(f"config.json: {name} is {hf[name]!r:.60}: this runtime knows {value} alone")
