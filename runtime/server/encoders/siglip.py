"""SigLIP as Gemma 3 has it (srt/models/siglip.py, gemma3_mm.py), and as Command A+ does, where it is
transformers' own on every rank (cohere2_vision.py); SigLIP 2 as LFM2-VL does (siglip2.py, lfm2_vl.py); one
that is told its patches' places as PaddleOCR-VL does (paddleocr_vl.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    block,
    column,
    layer_norm,
    layers,
    linear,
    row,
    vocabulary,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_DEFAULTS = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 16,
}  # fmt: skip
# Of a section that is not there at all.
_UNSAID = {
    "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 27, "num_attention_heads": 12,
    "image_size": 512,
}  # fmt: skip
_MERGED, _PACKED = 2, 32768
_BESIDE = {"downsample_factor": 2, "alignment_intermediate_size": 36864}
_SIGLIP_2 = {**_DEFAULTS, "num_patches": 256}
_JOINER = {
    "downsample_factor": 2, "projector_hidden_size": 2560, "projector_bias": True,
    "projector_use_layernorm": True,
}  # fmt: skip


def gemma3(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width = v.size("hidden_size")
    yield from _tower(v)
    yield from whole("multi_modal_projector.mm_input_projection_weight", width, text_width)
    yield from whole("multi_modal_projector.mm_soft_emb_norm.weight", width)


def cohere2_vision(hf: Mapping[str, Any], text_width: int) -> Weights:
    is_told = hf.get("vision_config") is not None
    v = Section(hf, defaults={**_DEFAULTS, "vision_use_head": True, **({} if is_told else _UNSAID)})
    yield from whole_tower(v)
    beside = Section(hf, "", _BESIDE)
    inner = beside.size("alignment_intermediate_size") // 2
    joined = v.size("hidden_size") * beside.size("downsample_factor") ** 2
    yield from column("multi_modal_projector.linear_1", 2 * inner, joined, units=inner)
    yield from row("multi_modal_projector.linear_2", text_width, inner)


def lfm2_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    v, joiner = Section(hf, defaults=_SIGLIP_2), Section(hf, "", _JOINER)
    width = v.size("hidden_size")
    if width % v.size("num_attention_heads"):
        raise ConfigError(f"config.json: vision_config: hidden_size {width} is no multiple of its heads")
    yield from linear("embeddings.patch_embedding", width, v.size("num_channels") * v.size("patch_size") ** 2)
    yield from whole("embeddings.position_embedding.weight", v.size("num_patches"), width)
    yield from split_layers(v, width)
    joined, inner = width * joiner.size("downsample_factor") ** 2, joiner.size("projector_hidden_size")
    if joiner.flag("projector_use_layernorm"):
        yield from layer_norm("multi_modal_projector.layer_norm", joined)
    bias = joiner.flag("projector_bias")
    yield from column("multi_modal_projector.linear_1", inner, joined, bias)
    yield from row("multi_modal_projector.linear_2", text_width, inner, bias)


def paddle_ocr(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Of places without a picture's sides there are as many as its class says, and nobody asks them."""
    if hf.get("text_config") is not None:
        raise Unsupported("config.json: text_config: SGLang's releases differ in what they read beside it")
    v = Section(hf)
    width, merge = v.size("hidden_size"), v.get("spatial_merge_size")
    if merge not in (None, _MERGED):
        raise ConfigError(f"{v.where}spatial_merge_size is {merge!r:.60}: SGLang has {_MERGED} alone")
    yield from patch_embedding(v, width)
    yield from whole("embeddings.position_embedding.weight", patches(v), width)
    yield from whole("packing_position_embedding.weight", _PACKED, width)
    yield from split_layers(v, width)
    yield from layer_norm("mlp_AR.pre_norm", width)
    yield from linear("mlp_AR.linear_1", width * _MERGED**2, width * _MERGED**2)
    yield from linear("mlp_AR.linear_2", text_width, width * _MERGED**2)


def whole_tower(v: Section) -> Weights:
    width, inner = v.size("hidden_size"), v.size("intermediate_size")
    yield from patch_embedding(v, width)
    yield from whole("embeddings.position_embedding.weight", patches(v), width)
    yield from layers(
        "encoder.layers",
        v.size("num_hidden_layers"),
        chain(
            layer_norm("layer_norm1", width),
            layer_norm("layer_norm2", width),
            linear("self_attn.qkv_proj", 3 * width, width),
            linear("self_attn.out_proj", width, width),
            whole_mlp(width, inner),
        ),
    )
    yield from layer_norm("post_layernorm", width)
    if v.flag("vision_use_head"):
        yield from whole("head.probe", 1, 1, width)
        yield from linear("head.attention.in_proj", 3 * width, width)
        yield from linear("head.attention.out_proj", width, width)
        yield from layer_norm("head.layernorm", width)
        yield from (replace(one, name=f"head.{one.name}") for one in whole_mlp(width, inner))


def whole_mlp(width: int, inner: int) -> Weights:
    yield from linear("mlp.fc1", inner, width)
    yield from linear("mlp.fc2", width, inner)


def patch_embedding(v: Section, width: int) -> Weights:
    side = v.size("patch_size")
    yield from whole("embeddings.patch_embedding.weight", width, v.size("num_channels"), side, side)
    yield from whole("embeddings.patch_embedding.bias", width)


def patches(v: Section) -> int:
    side = v.size("patch_size")
    patches = v.size("image_size") // side
    if not patches:
        raise ConfigError(f"config.json: vision_config: no patch of {side} fits into an image")
    return patches * patches


def _tower(v: Section) -> Weights:
    width = v.size("hidden_size")
    yield from patch_embedding(v, width)
    yield from vocabulary("embeddings.position_embedding", patches(v), width)
    yield from split_layers(v, width)


def split_layers(v: Section, width: int, dropped: bool = False) -> Weights:
    """`dropped`: the last of them is not there."""
    yield from split_blocks(v, width, dropped)
    yield from layer_norm("post_layernorm", width)


def split_blocks(v: Section, width: int, dropped: bool = False) -> Weights:
    inner = v.size("intermediate_size")
    yield from layers(
        "encoder.layers",
        v.size("num_hidden_layers") - dropped,
        block(width, v.size("num_attention_heads"), inner, ("layer_norm1", "layer_norm2")),
    )
