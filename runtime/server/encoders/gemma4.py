"""What Gemma 4 sees with, and hears with where it does, on the first pipeline stage alone
(srt/models/gemma4_vision.py, gemma4_audio.py, gemma4_mm.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EAR,
    EncoderWeight,
    Weights,
    column,
    layer_norm,
    layers,
    linear,
    named,
    rms_norm,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_SEES = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
    "num_key_value_heads": 12, "head_dim": 64, "patch_size": 16, "position_embedding_size": 10240,
}  # fmt: skip
_HEARS = {
    "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
    "subsampling_conv_channels": [128, 32], "conv_kernel_size": 5, "output_proj_dims": 1536,
}  # fmt: skip
_BANDS = 128  # of a sound, halved by either convolution
_TAPS = 3
_CHANNELS = 3


def gemma4(hf: Mapping[str, Any], text_width: int) -> Weights:
    if hf.get("vision_config") is None:
        raise Unsupported("config.json: gemma4 without a vision_config: SGLang makes its encoder of one")
    v = Section(hf, defaults=_SEES)
    seen = chain(_tower(v), linear("embed_vision", text_width, v.size("hidden_size"), bias=False))
    yield from _first(seen)
    if hf.get("audio_config") is not None:
        a = Section(hf, "audio_config", _HEARS)
        heard = chain(_ear(a), linear("embed_audio", text_width, a.size("output_proj_dims"), bias=False))
        yield from _first(heard)


def gemma4_unified(hf: Mapping[str, Any], text_width: int) -> Weights:
    """No encoder: rows of pixels, and of samples, are projected (srt/models/gemma4_unified.py). SGLang reads
    its sections by Gemma 4's own class, which has no defaults of these."""
    if hf.get("vision_config") is not None:
        v = Section(hf)
        width, pixels = v.size("mm_embed_dim"), _CHANNELS * v.size("model_patch_size") ** 2
        seen = (
            layer_norm("vision_embedder.patch_ln1", pixels),
            linear("vision_embedder.patch_dense", width, pixels),
            whole("vision_embedder.pos_embedding", v.size("mm_posemb_size"), 2, width),
            *(layer_norm(f"vision_embedder.{name}", width) for name in ("patch_ln2", "pos_norm")),
            linear("embed_vision", text_width, v.size("output_proj_dims"), bias=False),
        )
        yield from _first(chain(*seen))
    if hf.get("audio_config") is not None:
        heard = Section(hf, "audio_config", _HEARS).size("output_proj_dims")
        yield from _first(linear("embed_audio", text_width, heard, bias=False))


def _first(weights: Iterable[EncoderWeight]) -> Weights:
    return (replace(one, on_first_stage_alone=True) for one in weights)


def _tower(v: Section) -> Weights:
    width, inner = v.size("hidden_size"), v.size("intermediate_size")
    yield from linear("patch_embedder.input_proj", width, _CHANNELS * v.size("patch_size") ** 2, bias=False)
    yield from whole("patch_embedder.position_embedding_table", 2, v.size("position_embedding_size"), width)
    yield from layers(
        "encoder.layers",
        v.size("num_hidden_layers"),
        chain(
            _attention(v, width),
            column("mlp.gate_up_proj", 2 * inner, width, bias=False, units=inner),
            row("mlp.down_proj", width, inner, bias=False),
            *(rms_norm(name, width) for name in ("input_layernorm", "post_attention_layernorm")),
            *(rms_norm(name, width) for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm")),
        ),
    )


def _attention(v: Section, width: int) -> Weights:
    heads, kv_heads, each = (
        v.size(name) for name in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    if heads % kv_heads:
        raise ConfigError(f"config.json: vision_config: {heads} heads are no multiple of {kv_heads} KV heads")
    bias = v.flag("attention_bias")
    yield from column("attn.qkv_proj", (heads + 2 * kv_heads) * each, width, bias, units=kv_heads)
    yield from row("attn.o_proj", width, heads * each, bias, units=heads)
    for name in ("q_norm", "k_norm"):
        yield from rms_norm(f"attn.{name}", each)


def _ear(a: Section) -> Weights:
    yield from named(EAR, _listening(a))


def _listening(a: Section) -> Weights:
    width = a.size("hidden_size")
    channels = a.get("subsampling_conv_channels")
    is_pair = isinstance(channels, list) and len(channels) == 2
    if not is_pair or not all(type(one) is int and one > 0 for one in channels):
        where = f"config.json: audio_config: subsampling_conv_channels is {repr(channels)[:60]}"
        raise ConfigError(f"{where}: two whole numbers are needed")
    for number, (read, made) in enumerate(((1, channels[0]), channels)):
        name = f"subsample_conv_projection.conv_{number}"
        yield from whole(f"{name}.conv.weight", made, read, _TAPS, _TAPS)
        yield from whole(f"{name}.norm.weight", made)
    yield from row(
        "subsample_conv_projection.input_proj_linear", width, channels[1] * (_BANDS // 4), bias=False
    )
    yield from layers("conformer", a.size("num_hidden_layers"), _conformer(a, width))
    out = a.size("output_proj_dims")
    yield from row("output_proj", out, width)


def _conformer(a: Section, width: int) -> Weights:
    heads = a.size("num_attention_heads")
    for name in ("ffw_layer_start", "ffw_layer_end"):
        yield from column(f"{name}.ffw_layer_1", 4 * width, width, bias=False)
        yield from row(f"{name}.ffw_layer_2", width, 4 * width, bias=False)
        yield from chain(
            rms_norm(f"{name}.pre_layer_norm", width), rms_norm(f"{name}.post_layer_norm", width)
        )
    yield from column("attention.qkv_proj", 3 * (width // heads) * heads, width, False, heads)
    yield from column("attention.relative_position_embedding.pos_proj", width, width, bias=False)
    yield from whole("attention.per_dim_scale", width // heads)
    yield from row("attention.post", width, width, bias=False)
    for name in ("attention.pre_attn_norm", "attention.post_norm", "lconv1d.pre_layer_norm", "norm"):
        yield from rms_norm(name, width)
    yield from column("lconv1d.linear_start", 2 * width, width, bias=False, units=width)
    yield EncoderWeight("lconv1d.depthwise_conv1d.weight", (width, 1, a.size("conv_kernel_size")), 0)
    yield EncoderWeight("lconv1d.conv_norm.weight", (width,), 0)
    yield from row("lconv1d.linear_end", width, width, bias=False)
