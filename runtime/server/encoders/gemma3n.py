"""What Gemma 3n sees with, timm's MobileNet of one size, whole on each rank, and hears with
(srt/models/gemma3n_mm.py, gemma3n_audio.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EAR,
    EncoderWeight,
    Weights,
    column,
    layers,
    linear,
    named,
    rms_norm,
    row,
    vocabulary,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

# transformers' Gemma3nVisionConfig and Gemma3nAudioConfig, which it makes of what a file leaves out
_SEES = {"architecture": "mobilenetv5_300m_enc", "hidden_size": 2048, "vocab_size": 128}
_HEARS = {
    "vocab_size": 128, "input_feat_size": 128, "hidden_size": 1536, "conf_num_attention_heads": 8,
    "conf_num_hidden_layers": 12, "conf_conv_kernel_size": 5, "sscp_conv_channel_size": [128, 32],
    "sscp_conv_kernel_size": [[3, 3], [3, 3]], "sscp_conv_stride_size": [[2, 2], [2, 2]],
}  # fmt: skip
_DTYPES = (None, "bfloat16")
_STEM, _FUSED = 64, 2048
_STAGES = (128, 256, 640, 1280)  # rows of what each answers
_STEM_BIAS_SINCE = (0, 5, 23)  # which pins timm 1.0.25: 1.0.16 has none


def gemma3n(hf: Mapping[str, Any], text_width: int) -> Weights:
    v, a = Section(hf, defaults=_SEES), Section(hf, "audio_config", _HEARS)
    _check(v)
    yield from named("vision_tower.timm_model", _mobile_net())
    yield from named("embed_vision", _joined(v, text_width))
    yield from named("embed_audio", _joined(a, text_width))
    yield from named(EAR, _ear(a))


def _check(v: Section) -> None:
    told = {"architecture": (_SEES["architecture"],), "hidden_size": (_FUSED,), "model_args": (None, {})}
    told |= dict.fromkeys(("dtype", "torch_dtype"), _DTYPES)
    for name, known in told.items():
        if v.get(name) not in known:
            raise Unsupported(f"{v.where}{name} is {repr(v.get(name))[:60]}: here is {known[-1]!r}")


def _joined(section: Section, text_width: int) -> Weights:
    width = section.size("hidden_size")
    yield from vocabulary("embedding", section.size("vocab_size"), width)
    for name in ("hard_embedding_norm", "soft_embedding_norm"):
        yield from rms_norm(name, width)
    yield from linear("embedding_projection", text_width, width, bias=False)


def _mobile_net() -> Weights:
    yield from whole("conv_stem.conv.weight", _STEM, 3, 3, 3)
    yield EncoderWeight("conv_stem.conv.bias", (_STEM,), since=_STEM_BIAS_SINCE)
    yield from rms_norm("conv_stem.bn", _STEM)
    edges, narrow, wide, widest = _STAGES
    blocks = (
        (_edge(_STEM, edges), *(_edge(edges, edges) for _ in range(2))),
        (_inverted(edges, narrow, 6, 3, 5), *(_inverted(narrow, narrow, 4, start) for start in (5, 3) * 2)),
        (
            _inverted(narrow, wide, 6, 5, 5),
            *(_inverted(wide, wide, 4, 5) for _ in range(7)),
            _inverted(wide, wide, 1),
            *(one for _ in range(14) for one in (_attention(wide, 12, 64, 3), _inverted(wide, wide, 2))),
        ),
        (
            _inverted(wide, widest, 6, 5, 5),
            *(one for _ in range(19) for one in (_attention(widest, 16, 96), _inverted(widest, widest, 2))),
        ),
    )
    for stage, of_stage in enumerate(blocks):
        for number, block in enumerate(of_stage):
            yield from named(f"blocks.{stage}.{number}", block)
    read = wide + widest
    yield from named(
        "msfa.ffn", chain(_pointwise("pw_exp", read, 2 * read), _pointwise("pw_proj", 2 * read, _FUSED))
    )
    yield from rms_norm("msfa.norm", _FUSED)


def _edge(read: int, made: int) -> Weights:
    inner = 4 * read
    yield from whole("conv_exp.weight", inner, read, 3, 3)
    yield from rms_norm("bn1", inner)
    yield from whole("conv_pwl.weight", made, inner, 1, 1)
    yield from rms_norm("bn2", made)


def _inverted(read: int, made: int, factor: int, start: int = 0, middle: int = 0) -> Weights:
    """As many taps of each channel by itself, before rows are widened and behind that."""
    inner = factor * read
    yield from _depthwise("dw_start", read, start)
    yield from _pointwise("pw_exp", read, inner)
    yield from _depthwise("dw_mid", inner, middle)
    yield from _pointwise("pw_proj", inner, made)
    yield from whole("layer_scale.gamma", made)


def _depthwise(name: str, channels: int, taps: int) -> Weights:
    if taps:
        yield from whole(f"{name}.conv.weight", channels, 1, taps, taps)
        yield from rms_norm(f"{name}.bn", channels)


def _pointwise(name: str, read: int, made: int) -> Weights:
    yield from whole(f"{name}.conv.weight", made, read, 1, 1)
    yield from rms_norm(f"{name}.bn", made)


def _attention(width: int, heads: int, each: int, taps: int = 0) -> Weights:
    """Of one head of keys and one of values, which `taps` may make of fewer places."""
    yield from rms_norm("norm", width)
    yield from whole("attn.query.proj.weight", heads * each, width, 1, 1)
    for name in ("key", "value"):
        if taps:
            yield from whole(f"attn.{name}.down_conv.weight", width, 1, taps, taps)
            yield from rms_norm(f"attn.{name}.norm", width)
        yield from whole(f"attn.{name}.proj.weight", each, width, 1, 1)
    yield from whole("attn.output.proj.weight", width, heads * each, 1, 1)
    yield from whole("layer_scale.gamma", width)


def _ear(a: Section) -> Weights:
    width, bands = a.size("hidden_size"), a.size("input_feat_size")
    channels, kernels, strides = _numbers(a, "sscp_conv_channel_size"), *_pairs(a)
    for number, (read, made) in enumerate(((1, channels[0]), channels)):
        name = f"subsample_conv_projection.conv_{number}"
        yield from whole(f"{name}.conv.weight", made, read, *kernels[number])
        yield from whole(f"{name}.norm.weight", made)
        bands = (bands + 2 - kernels[number][1]) // strides[number][1] + 1
    yield from row("subsample_conv_projection.input_proj_linear", width, channels[1] * bands, bias=False)
    yield from layers("conformer", a.size("conf_num_hidden_layers"), _conformer(a, width))


def _pairs(a: Section) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Of both convolutions, along time and bands."""
    listed = [(name, a.get(name)) for name in ("sscp_conv_kernel_size", "sscp_conv_stride_size")]
    return tuple(tuple(_two(a, name, one) for one in _of_two(a, name, told)) for name, told in listed)


def _numbers(a: Section, name: str) -> tuple[int, int]:
    return _two(a, name, a.get(name))


def _two(a: Section, name: str, told: Any) -> tuple[int, int]:
    first, second = _of_two(a, name, told)
    if not all(type(one) is int and one > 0 for one in (first, second)):
        raise ConfigError(f"{a.where}{name} is {repr(told)[:60]}: two whole numbers are needed")
    return first, second


def _of_two(a: Section, name: str, told: Any) -> list[Any]:
    if not isinstance(told, list) or len(told) != 2:
        raise ConfigError(f"{a.where}{name} is {repr(told)[:60]}: two of each are needed")
    return told


def _conformer(a: Section, width: int) -> Weights:
    heads = a.size("conf_num_attention_heads")
    if width % heads:
        raise ConfigError(f"{a.where}hidden_size is {width}, no multiple of {heads} heads")
    for name in ("ffw_layer_start", "ffw_layer_end"):
        yield from column(f"{name}.ffw_layer_1", 4 * width, width, bias=False)
        yield from row(f"{name}.ffw_layer_2", width, 4 * width, bias=False)
        for norm in ("pre_layer_norm", "post_layer_norm"):
            yield from rms_norm(f"{name}.{norm}", width)
    yield from column("attention.attn.qkv_proj", 3 * width, width, False, heads)
    yield from column("attention.attn.relative_position_embedding.pos_proj", width, width, bias=False)
    yield from whole("attention.attn.per_dim_scale", width // heads)
    yield from row("attention.post", width, width, bias=False)
    for name in ("attention.pre_attn_norm", "attention.post_norm", "lconv1d.pre_layer_norm", "norm"):
        yield from rms_norm(name, width)
    yield from column("lconv1d.linear_start", 2 * width, width, bias=False)
    yield from whole("lconv1d.depthwise_conv1d.weight", width, 1, a.size("conf_conv_kernel_size"))
    yield from rms_norm("lconv1d.conv_norm", width)
    yield from row("lconv1d.linear_end", width, width, bias=False)
