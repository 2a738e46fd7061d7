"""Nemotron's RADIO, which is named and not described, its projector, and its ear where it has one
(srt/models/nano_nemotron_vl.py, radio.py, parakeet.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.bounds import WIDTH, check_size
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EAR,
    Weights,
    attention,
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

# VIT_TIMM_DIM_BY_NAME of srt/configs/radio.py: width, layers, heads, and of an MLP.
_KNOWN = {
    "vit_small_patch16_224": (384, 12, 6, 1536),
    "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096),
    "vit_huge_patch16_224": (1280, 32, 16, 5120),
}
_SIDE = 2048  # of the largest image
_SEES = {"video_temporal_patch_size": 1, "separate_video_embedder": True}
_WHOLE = {"patch_size": 16, "projector_hidden_size": 4096, "vit_hidden_size": 1280}
# transformers' ParakeetEncoderConfig's.
_HEARS = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 8, "intermediate_size": 4096,
    "convolution_bias": True, "conv_kernel_size": 9, "subsampling_factor": 8,
    "subsampling_conv_channels": 256, "num_mel_bins": 80, "subsampling_conv_kernel_size": 3,
    "subsampling_conv_stride": 2,
}  # fmt: skip
# What SGLang says of it itself.
_SET = ("attention_bias", "scale_input", "max_position_embeddings")
_WITH_NORM = "NemotronH_Omni_Reasoning_V3"


def nemotron(hf: Mapping[str, Any], text_width: int) -> Weights:
    if not isinstance(hf.get("vision_config"), Mapping):
        raise Unsupported("config.json: without a vision_config: SGLang makes Nemotron's encoder of one")
    w = Section(hf, "", _WHOLE)
    seen = w.size("vit_hidden_size")
    yield from _radio(hf, w.size("patch_size"))
    merged, inner = seen * _shrunk(hf) ** 2, w.size("projector_hidden_size")
    yield from rms_norm("mlp1.0", merged)
    yield from linear("mlp1.1", inner, merged, bias=False)
    yield from linear("mlp1.3", text_width, inner, bias=False)
    if (hf.get("architectures") or [None])[0] == _WITH_NORM and hf["llm_config"].get(
        "num_nextn_predict_layers"
    ):
        yield from layer_norm("vision_final_layernorm", seen)
    if hf.get("sound_config") is not None:
        yield from named(EAR, _parakeet(Section(hf, "sound_config", _HEARS), text_width))


def _shrunk(hf: Mapping[str, Any]) -> int:
    ratio = hf.get("downsample_ratio", 0.5)
    if not isinstance(ratio, (int, float)) or isinstance(ratio, bool) or not 0 < ratio <= 1:
        raise ConfigError(f"config.json: downsample_ratio is {repr(ratio)[:60]}: above 0 and at most 1")
    return round(1 / ratio)


def _radio(hf: Mapping[str, Any], patch: int) -> Weights:
    v = Section(hf, defaults={**_SEES, "patch_size": patch})
    width, count, heads, inner = _named_tower(v)
    side, frames = v.size("patch_size"), v.size("video_temporal_patch_size")
    read, rows = 3 * side**2, math.ceil(round(_SIDE / side) * side / side)
    yield from whole("patch_generator.cls_token.token", 1 + _registers(v), width)
    yield from linear("patch_generator.embedder", width, read, bias=False)
    yield from whole("patch_generator.pos_embed", 1, rows**2, width)
    if frames > 1 and v.flag("separate_video_embedder"):
        yield from linear("patch_generator.video_embedder", width, read * frames, bias=False)
    yield from layers(
        "encoder.layers",
        count,
        chain(
            layer_norm("norm1", width),
            layer_norm("norm2", width),
            whole("ls1", width),
            whole("ls2", width),
            attention(width, heads),
            column("mlp.fc1", inner, width),
            row("mlp.fc2", width, inner),
        ),
    )


def _named_tower(v: Section) -> tuple[int, int, int, int]:
    name = _args(v).get("model")
    if not isinstance(name, str) or name not in _KNOWN:
        where = f"{v.where}args: model is {repr(name)[:60]}"
        raise Unsupported(f"{where}: SGLang knows {', '.join(_KNOWN)}")
    return _KNOWN[name]


def _registers(v: Section) -> int:
    """As many as make the class's own token a multiple."""
    told = _args(v).get("register_multiple")
    if told is None:
        return 0
    if type(told) is not int or told < 1:
        raise ConfigError(
            f"{v.where}args: register_multiple is {repr(told)[:60]}: a positive whole number is needed"
        )
    check_size(f"{v.where}args: register_multiple", told, WIDTH)
    return told - 1 % told


def _args(v: Section) -> Mapping[str, Any]:
    told = v.get("args")
    return told if isinstance(told, Mapping) else {}


def _parakeet(a: Section, text_width: int) -> Weights:
    for name in _SET:
        if a.get(name) is not None:
            raise ConfigError(f"{a.where}{name} is told: SGLang gives it a second time, and ends there")
    if a.get("projection_bias") is None:
        raise ConfigError(f"{a.where}has no projection_bias, which SGLang asks for")
    width, bias = a.size("hidden_size"), a.flag("projection_bias")
    yield from _subsampling(a, width)
    yield from layers("layers", a.size("num_hidden_layers"), _conformer(a, width))
    inner = a.size("projection_hidden_size")
    yield from rms_norm("projection.norm", width)
    yield from linear("projection.linear1", inner, width, bias)
    yield from linear("projection.linear2", text_width, inner, bias)


def _subsampling(a: Section, width: int) -> Weights:
    """Halved as often as a power of two is told, the first time by whole kernels."""
    channels, taps, stride = (
        a.size(f"subsampling_conv_{name}") for name in ("channels", "kernel_size", "stride")
    )
    times = int(math.log2(a.size("subsampling_factor")))
    yield from _convolution("subsampling.layers.0", channels, 1, taps, taps)
    for number in range(times - 1):
        at = 2 + 3 * number
        yield from _convolution(f"subsampling.layers.{at}", channels, 1, taps, taps)
        yield from _convolution(f"subsampling.layers.{at + 1}", channels, channels, 1, 1)
    yield from linear("subsampling.linear", width, channels * (a.size("num_mel_bins") // stride**times))


def _convolution(name: str, made: int, *rest: int, bias: bool = True) -> Weights:
    yield from whole(f"{name}.weight", made, *rest)
    if bias:
        yield from whole(f"{name}.bias", made)


def _conformer(a: Section, width: int) -> Weights:
    heads, inner, bias = (
        a.size("num_attention_heads"),
        a.size("intermediate_size"),
        a.flag("convolution_bias"),
    )
    each = a.size("head_dim") if a.get("head_dim") is not None else width // heads
    for name in ("feed_forward1", "feed_forward2"):
        yield from linear(f"{name}.linear1", inner, width, bias=False)
        yield from linear(f"{name}.linear2", width, inner, bias=False)
    for name in ("q_proj", "k_proj", "v_proj", "relative_k_proj"):
        yield from linear(f"self_attn.{name}", heads * each, width, bias=False)
    yield from linear("self_attn.o_proj", width, heads * each, bias=False)
    yield from whole("self_attn.bias_u", heads, each)
    yield from whole("self_attn.bias_v", heads, each)
    yield from _convolution("conv.pointwise_conv1", 2 * width, width, 1, bias=bias)
    yield from _convolution("conv.depthwise_conv", width, 1, a.size("conv_kernel_size"), bias=bias)
    yield from _convolution("conv.pointwise_conv2", width, width, 1, bias=bias)
    norms = ("feed_forward1", "self_att", "conv", "feed_forward2", "out")
    yield from layer_norm("conv.norm", width)
    for name in norms:
        yield from layer_norm(f"norm_{name}", width)
