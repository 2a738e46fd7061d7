"""The vision towers of GLM-4.1V to 4.6V (srt/models/glm4v.py) and of GLM-5.3 Flash (glm5_next.py): their
heads are padded to divide. That of GLM-OCR (glm_ocr.py): its are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    in_fp32,
    layer_norm,
    layers,
    linear,
    over_attention_ranks,
    rms_norm,
    row,
    whole,
)
from runtime.server.errors import ConfigError

_DEFAULTS = {
    "depth": 24, "hidden_size": 1536, "num_heads": 12, "in_channels": 3, "image_size": 336,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 4096,
    "intermediate_size": 13696,
}  # fmt: skip

_NEXT = {
    "depth": 24, "hidden_size": 1024, "num_heads": 16, "in_channels": 3, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 1536, "intermediate_size": 4096,
    "attention_bias": True,
}  # fmt: skip


_TEXT = {"intermediate_size": 4096}
_GROUPED_SINCE = (0, 5, 22)  # its heads in every release


def glm4v(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """A block's inner width is `out_hidden_size`, the merger's `intermediate_size`."""
    v = Section(hf, defaults=_DEFAULTS)
    width, out, inner = v.size("hidden_size"), v.size("out_hidden_size"), v.size("intermediate_size")
    side, merge = v.size("patch_size"), v.size("spatial_merge_size")
    shape = (v.size("in_channels"), v.size("temporal_patch_size"), side, side)
    yield from whole("patch_embed.proj.weight", width, *shape)
    yield from whole("patch_embed.proj.bias", width)
    yield from whole("embeddings.position_embedding.weight", (v.size("image_size") // side) ** 2, width)
    heads, bias = v.size("num_heads"), v.flag("attention_bias")
    yield from layers(
        "blocks",
        v.size("depth"),
        chain(
            rms_norm("norm1", width),
            rms_norm("norm2", width),
            attention(width, heads, bias, out_bias=False, pads=True),
            over_attention_ranks(_gated("mlp", width, out), _GROUPED_SINCE),
        ),
    )
    yield from linear("merger.proj", out, out, bias=False)
    yield from in_fp32(layer_norm("merger.post_projection_norm", out))
    yield from over_attention_ranks(_gated("merger", out, inner), _GROUPED_SINCE)
    yield from rms_norm("post_conv_layernorm", width)
    yield from whole("downsample.weight", out, width, merge, merge)
    yield from whole("downsample.bias", out)
    yield from rms_norm("post_layernorm", width)


def glm_ocr(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """Two parts of the tower that its class stems from are made, too, and nobody asks them. What joins it to
    text is as wide as an MLP of the text; SGLang has taken another width since 0.5.20."""
    v, text = Section(hf, defaults={**_NEXT, "image_size": 336}), Section(hf, "text_config", _TEXT)
    width, inner = v.size("hidden_size"), text.size("intermediate_size")
    taken = v.size("projection_intermediate_size", "intermediate_size")
    yield from _normed_tower(v, pads=False)
    joined = _merged(v, inner)
    yield from joined if taken == inner else (replace(one, cut_since=(0, 5, 20)) for one in joined)
    yield from whole(
        "embeddings.position_embedding.weight", (v.size("image_size") // v.size("patch_size")) ** 2, width
    )
    yield from rms_norm("post_conv_layernorm", width)


def glm5_next(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """What SGLang's class takes otherwise than transformers', or not at all, is to be told."""
    v = Section(hf, defaults=_NEXT)
    for name in ("swiglu_limit", "projection_intermediate_size"):
        if v.get(name) is None:
            raise ConfigError(f"{v.where}{name} is missing: SGLang and transformers take two other values")
    yield from _normed_tower(v, pads=True)
    yield from _merged(v, v.size("projection_intermediate_size"))


def _normed_tower(v: Section, pads: bool) -> Weights:
    """Of blocks that norm each head."""
    width, heads, side = v.size("hidden_size"), v.size("num_heads"), v.size("patch_size")
    shape = (v.size("in_channels"), v.size("temporal_patch_size"), side, side)
    yield from whole("patch_embed.proj.weight", width, *shape)
    yield from whole("patch_embed.proj.bias", width)
    yield from layers(
        "blocks",
        v.size("depth"),
        chain(
            rms_norm("norm1", width),
            rms_norm("norm2", width),
            attention(width, heads, v.flag("attention_bias"), pads=pads),
            *(rms_norm(f"attn.{one}_norm", width // heads) for one in "qk"),
            over_attention_ranks(_gated("mlp", width, v.size("intermediate_size"), bias=True)),
        ),
    )


def _merged(v: Section, inner: int) -> Weights:
    width, out, merge = v.size("hidden_size"), v.size("out_hidden_size"), v.size("spatial_merge_size")
    yield from linear("merger.proj", out, out, bias=False)
    yield from in_fp32(layer_norm("merger.post_projection_norm", out))
    yield from over_attention_ranks(_gated("merger", out, inner))
    yield from whole("downsample.weight", out, width, merge, merge)
    yield from whole("downsample.bias", out)
    yield from rms_norm("post_layernorm", width)


def _gated(name: str, width: int, inner: int, bias: bool = False) -> Weights:
    yield from column(f"{name}.gate_up_proj", 2 * inner, width, bias, units=inner)
    yield from row(f"{name}.down_proj", width, inner, bias)
