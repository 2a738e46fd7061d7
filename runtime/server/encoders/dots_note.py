"""The towers of dots.note (srt/models/dots3_common: dots_omni_vision.py, dots_omni_audio.py): whole on every
rank of the first stage, in the model's dtype. Experts of what sees are there a second time, in fp8."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.bounds import WIDTH, check_size
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import EAR, Weights, layer_norm, layers, linear, named, rms_norm, whole
from runtime.server.errors import ConfigError

_EYE = "visual"
_ANGLES = 100_000  # of which as many rows are kept
_BLOCK = 128  # of fp8, which has one scale
_SEES = {
    "embed_dim": 1536, "intermediate_size": 4224, "moe_intermediate_size": 2112, "num_hidden_layers": 42,
    "num_attention_heads": 24, "num_channels": 3, "patch_size": 14, "adapter_in_dim": 1536,
    "adapter_out_dim": 2048, "adapter_merge_size": 2, "adapter_type": "pixel_shuffle_mlp",
    "use_qk_norm": True, "post_norm": True, "enable_fp8_moe": True,
}  # fmt: skip
_HEARS = {
    "encoder_type": "dots", "downsample_hidden_size": 480, "use_conv2d_stem": True, "use_rope": True,
    "use_rms_norm": True,
}  # fmt: skip
_ADAPTER = {"in": 1280, "out": 2048}
# transformers' WhisperConfig, and what a sound is cut into
_WHISPER = {
    "d_model": 384, "encoder_layers": 4, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536,
    "max_source_positions": 1500, "activation_function": "gelu",
}  # fmt: skip
_BINS = 128


def dots_note(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """Where both sections are told: without them its servers end."""
    if not has_towers(hf):
        return
    sees, hears = _eye(Section(hf, defaults=_SEES)), _ear(Section(hf, "audio_config", _HEARS))
    for one in chain(named(_EYE, sees), named(EAR, hears)):
        yield replace(one, on_first_stage_alone=True)


def has_towers(hf: Mapping[str, Any]) -> bool:
    return hf.get("vision_config") is not None and hf.get("audio_config") is not None


def _eye(v: Section) -> Weights:
    width, side, bias = v.size("embed_dim"), v.size("patch_size"), v.flag("use_bias")
    yield from whole("patch_embed.proj.weight", width, v.size("num_channels"), side, side)
    yield from whole("patch_embed.proj.bias", width)
    yield from rms_norm("patch_embed.norm", width)
    depth, heads = v.size("num_hidden_layers"), v.size("num_attention_heads")
    if width % heads:
        raise ConfigError(f"{v.where}num_attention_heads {heads} do not divide embed_dim {width}")
    yield from whole("rotary_pos_emb.freqs_cache", _ANGLES, -(-(width // heads // 2) // 2))
    yield from layers("blocks", depth, _seeing(width, width // heads, bias, v.flag("use_qk_norm")))
    routed = _routed(v, depth)
    if depth > len(routed):
        yield from layers("blocks.mlp", depth - len(routed), _mlp(width, v.size("intermediate_size"), bias))
    for layer, count in routed.items():
        yield from named(f"blocks.{layer}.mlp", _experts(v, width, count, bias))
    if v.flag("post_norm"):
        yield from rms_norm("post_trunk_norm", width)
    yield from _adapter(v)


def _seeing(width: int, each: int, bias: bool, has_norms: bool) -> Weights:
    yield from linear("attn.qkv_proj", 3 * width, width, bias)
    yield from linear("attn.proj", width, width, bias)
    for name in ("q_norm", "k_norm") if has_norms else ():
        yield from rms_norm(f"attn.{name}", each)
    yield from rms_norm("norm_1", width)
    yield from rms_norm("norm_2", width)


def _mlp(width: int, inner: int, bias: bool) -> Weights:
    yield from linear("fc13", 2 * inner, width, bias)
    yield from linear("fc2", width, inner, bias)


def _routed(v: Section, depth: int) -> dict[int, int]:
    """How many experts those layers have that have some."""
    told = v.get("pyramid_num_routed") or []
    if not isinstance(told, list) or not all(type(one) is int for one in told):
        raise ConfigError(
            f"{v.where}pyramid_num_routed is {repr(told)[:60]}: a list of whole numbers is needed"
        )
    routed = {layer: count for layer, count in enumerate(told[:depth]) if count > 0}
    for one in routed.values():
        check_size(f"{v.where}pyramid_num_routed", one, WIDTH)
    return routed


def _experts(v: Section, width: int, count: int, bias: bool) -> Weights:
    inner = v.size("moe_intermediate_size")
    yield from whole("router_bias", count)
    yield from whole("gate_weight", count, width)
    yield from layers("experts", count, _mlp(width, inner, bias))
    if v.flag("enable_fp8_moe"):
        blocks, across = -(-inner // _BLOCK), -(-width // _BLOCK)
        for name, rows, columns in (("w13", 2 * blocks, across), ("w2", across, blocks)):
            packed = whole(f"fused_{name}", count, rows * _BLOCK, columns * _BLOCK)
            yield from (replace(one, in_fp8=True) for one in packed)
            scales = whole(f"fused_{name}_scale", count, rows, columns)
            yield from (replace(one, in_fp32=True) for one in scales)


def _adapter(v: Section) -> Weights:
    read, out, kind = v.size("adapter_in_dim"), v.size("adapter_out_dim"), v.get("adapter_type")
    merged = read * v.size("adapter_merge_size") ** 2
    check_size(f"{v.where}adapter_merge_size", merged, WIDTH)
    if kind == "pixel_shuffle_mlp":
        yield from layer_norm("adapter.proj.0", merged)
        yield from linear("adapter.proj.1", out, merged)
        yield from linear("adapter.proj.3", out, out)
    elif kind == "patch_merger":
        yield from layer_norm("adapter.ln_q", read)
        yield from linear("adapter.mlp.0", merged, merged)
        yield from linear("adapter.mlp.2", out, merged)
    else:
        raise ConfigError(f"{v.where}adapter_type is {repr(kind)[:60]}: SGLang has no such one")


def _ear(a: Section) -> Weights:
    if a.get("encoder_type") != "dots":
        raise ConfigError(f"{a.where}encoder_type is {repr(a.get('encoder_type'))[:60]}: SGLang has 'dots'")
    told = a.get("whisper_config") or {}
    w = Section({"whisper_config": told}, "whisper_config", _WHISPER)
    read, out = (_adapter_size(a, one) for one in ("in", "out"))
    yield from layer_norm("audio_adapter.proj.0", read)
    yield from linear("audio_adapter.proj.1", out, read)
    yield from linear("audio_adapter.proj.3", out, out)
    width = w.size("d_model")
    yield from _stem(a, width)
    if not a.flag("use_rope"):
        yield from whole("embed_positions.weight", w.size("max_source_positions"), width)
    yield from layers("layers", w.size("encoder_layers"), _hearing(a, w, width))
    yield from _norm(a, "layer_norm", width)


def _adapter_size(a: Section, end: str) -> int:
    names = f"whisper_adapter_{end}_dim", f"adapter_{end}_dim"
    return a.size(*names) if a.get(*names) is not None else _ADAPTER[end]


def _stem(a: Section, width: int) -> Weights:
    is_latent = a.flag("use_latent_input")
    if not a.flag("use_conv2d_stem"):
        rows, read = (2 * width, a.size("latent_dim")) if is_latent else (width, _BINS)
        yield from whole("conv1.weight", rows, read, 3)
        yield from whole("conv1.bias", rows)
        yield from whole("conv2.weight", width, width, 3)
        yield from whole("conv2.bias", width)
        return
    if is_latent:
        raise ConfigError(f"{a.where}use_latent_input beside use_conv2d_stem: SGLang takes one of them")
    inner = a.size("downsample_hidden_size")
    for number, read in ((1, 1), (2, inner), (3, inner)):
        yield from whole(f"conv2d{number}.weight", inner, read, 3, 3)
        yield from whole(f"conv2d{number}.bias", inner)
    yield from linear("conv_out", width, inner * (_BINS // 8), bias=False)


def _hearing(a: Section, w: Section, width: int) -> Weights:
    heads, inner = w.size("encoder_attention_heads"), w.size("encoder_ffn_dim")
    if width % heads:
        raise ConfigError(f"{w.where}encoder_attention_heads {heads} do not divide d_model {width}")
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        yield from linear(f"self_attn.{name}", width, width, bias=name != "k_proj")
    yield from _norm(a, "self_attn_layer_norm", width)
    is_gated = w.get("activation_function") == "swiglu"
    yield from linear("fc1", 2 * inner if is_gated else inner, width)
    yield from linear("fc2", width, inner)
    yield from _norm(a, "final_layer_norm", width)


def _norm(a: Section, name: str, width: int) -> Weights:
    return rms_norm(name, width) if a.flag("use_rms_norm") else layer_norm(name, width)
