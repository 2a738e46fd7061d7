"""The vision towers of Qwen2-VL, 2.5-VL and 3-VL (srt/models/qwen2_vl.py, qwen2_5_vl.py, qwen3_vl.py), both
of Qwen3-Omni (qwen3_omni_moe.py), whose ear Qwen3-ASR has (qwen3_asr.py), and Qwen2-VL's as POINTS and
Sarashina have it (points_v15_chat.py, sarashina2_vision.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EAR,
    Weights,
    attention,
    block,
    column,
    layer_norm,
    layers,
    linear,
    named,
    over_attention_ranks,
    rms_norm,
    row,
    vocabulary,
    whole,
)
from runtime.server.errors import Unsupported

_QWEN2 = {
    "depth": 32, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4, "num_heads": 16,
    "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
_POINTS, _QUANTIZED = {"embed_dim": 1280, "spatial_merge_size": 2}, "quantization_config"
_OF_KEYS = ("kv_cache_scheme", "kv_cache_quant_algo")
_QWEN25 = {
    "depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "num_heads": 16, "in_channels": 3,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584,
}  # fmt: skip
QWEN3 = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "in_channels": 3,
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}  # fmt: skip
QWEN3_DEEP = {**QWEN3, "deepstack_visual_indexes": [8, 16, 24]}
_AUDIO = {
    "d_model": 1280, "downsample_hidden_size": 480, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
    "encoder_layers": 32, "num_mel_bins": 128, "output_dim": 3584,
}  # fmt: skip


def qwen2_vl(hf: Mapping[str, Any], _text_width: int) -> Weights:
    return _qwen2_tower(Section(hf, defaults=_QWEN2))


def points(hf: Mapping[str, Any], text_width: int) -> Weights:
    """What merges its tower's patches is there, and nobody asks it."""
    v = Section(hf)
    for name, served in _POINTS.items():
        if v.size(name) != served:
            raise Unsupported(
                f"{v.where}{name} is {v.size(name)}: SGLang joins {served} alone to POINTS' text"
            )
    if v.get("in_channels") not in (None, v.size("in_chans")):
        raise Unsupported(f"{v.where}in_channels is {v.get('in_channels')!r:.60}: SGLang reads in_chans")
    told = hf.get("llm_config")
    if isinstance(told, Mapping) and told.get(_QUANTIZED) is not None:
        raise Unsupported(f"config.json: llm_config: {_QUANTIZED}: which of two SGLang reads is not known")
    section = hf.get(_QUANTIZED)
    if isinstance(section, Mapping) and any(section.get(name) is not None for name in _OF_KEYS):
        raise Unsupported(f"config.json: {_QUANTIZED}: SGLang's POINTS ends at scales of keys and values")
    yield from named("vision_encoder", _qwen2_tower(v))
    yield from layer_norm("vision_projector.ln_q", v.size("embed_dim"))
    joined = v.size("embed_dim") * v.size("spatial_merge_size") ** 2
    yield from _projection("vision_projector.mlp", joined, text_width)


def sarashina(hf: Mapping[str, Any], text_width: int) -> Weights:
    """What its tower makes is normed."""
    v, text = Section(hf), Section(hf, "text_config")
    if v.size("hidden_size") != text_width:
        raise Unsupported(f"{v.where}hidden_size is {v.size('hidden_size')}: its text is {text_width} wide")
    if v.get("in_channels") not in (None, v.size("in_chans")):
        raise Unsupported(f"{v.where}in_channels is {v.get('in_channels')!r:.60}: SGLang reads in_chans")
    if hf.get("vocab_size") not in (None, text.get("vocab_size")):
        raise Unsupported(f"config.json: vocab_size is {hf['vocab_size']!r:.60}: its text_config has another")
    for name in ("rope_scaling", "rope_parameters"):
        if text.get(name) is not None:
            raise Unsupported(
                f"{text.where}{name}: what SGLang makes of one it tells a LlamaConfig is unknown"
            )
    if any(one.get(_QUANTIZED) is not None for one in (Section(hf, ""), text)):
        raise Unsupported(f"config.json: {_QUANTIZED}: which of Sarashina's matrices lists mean is not known")
    yield from named("visual", _qwen2_tower(v))
    yield from layer_norm("norm", text_width)


def _qwen2_tower(v: Section) -> Weights:
    width, out = v.size("embed_dim"), v.size("hidden_size")
    inner = width * v.size("mlp_ratio")
    yield from _patches(v, width, "in_chans", "in_channels")  # without the first a server ends
    yield from layers(
        "blocks",
        v.size("depth"),
        block(width, v.size("num_heads"), inner),
    )
    yield from layer_norm("merger.ln_q", width)
    yield from _projection("merger.mlp", width * v.size("spatial_merge_size") ** 2, out)


def qwen2_5_vl(hf: Mapping[str, Any], _text_width: int) -> Weights:
    v = Section(hf, defaults=_QWEN25)
    width = v.size("hidden_size")
    inner = -(-v.size("intermediate_size") // 8) * 8
    yield from _patches(v, width, "in_channels")
    yield from layers(
        "blocks",
        v.size("depth"),
        chain(
            rms_norm("norm1", width),
            rms_norm("norm2", width),
            attention(width, v.size("num_heads")),
            column("mlp.gate_up_proj", 2 * inner, width, units=inner),
            row("mlp.down_proj", width, inner),
        ),
    )
    yield from rms_norm("merger.ln_q", width)
    yield from _projection("merger.mlp", width * v.size("spatial_merge_size") ** 2, v.size("out_hidden_size"))


def qwen3_vl(hf: Mapping[str, Any], _text_width: int) -> Weights:
    return qwen3_tower(Section(hf, defaults=QWEN3_DEEP))


def interns1_pro(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """By the class beside a checkpoint."""
    return qwen3_tower(Section(hf, defaults=QWEN3))


def qwen3_omni(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """What merges its patches is shared by all ranks."""
    yield from qwen3_tower(Section(hf, defaults=QWEN3_DEEP), iter)
    yield from named(EAR, _audio(Section(hf, "audio_config", _AUDIO)))


def qwen3_asr(hf: Mapping[str, Any], _text_width: int) -> Weights:
    return named(EAR, _audio(Section(hf, "audio_config", _AUDIO)))


def _audio(a: Section) -> Weights:
    width, channels, mels = a.size("d_model"), a.size("downsample_hidden_size"), a.size("num_mel_bins")
    for number, read in enumerate((1, channels, channels), start=1):
        yield from whole(f"conv2d{number}.weight", channels, read, 3, 3)
        yield from whole(f"conv2d{number}.bias", channels)
        mels = (mels + 1) // 2
    yield from linear("conv_out", width, channels * mels, bias=False)
    inner = a.size("encoder_ffn_dim")
    yield from layers(
        "layers",
        a.size("encoder_layers"),
        block(width, a.size("encoder_attention_heads"), inner, ("self_attn_layer_norm", "final_layer_norm")),
    )
    yield from layer_norm("ln_post", width)
    yield from linear("proj1", width, width)
    yield from linear("proj2", a.size("output_dim"), width)


def qwen3_tower(v: Section, merged_over: Callable[[Weights], Weights] = over_attention_ranks) -> Weights:
    """Its rows of positions lie on the first pipeline stage, the rest on every one. `merged_over`: whose part
    of what merges patches a rank has."""
    width, inner = v.size("hidden_size"), v.size("intermediate_size")
    merged, out = width * v.size("spatial_merge_size") ** 2, v.size("out_hidden_size")
    yield from _patches(v, width, "in_channels", bias=True)
    for weight in vocabulary("pos_embed", v.size("num_position_embeddings"), width):
        yield replace(weight, group="attn_tp", on_first_stage_alone=True)
    mlp = chain(column("mlp.linear_fc1", inner, width), row("mlp.linear_fc2", width, inner))
    yield from layers(
        "blocks",
        v.size("depth"),
        chain(
            layer_norm("norm1", width),
            layer_norm("norm2", width),
            attention(width, v.size("num_heads")),
            over_attention_ranks(mlp),
        ),
    )
    yield from layer_norm("merger.norm", width)
    yield from merged_over(_projection("merger", merged, out))
    deep = v.count_of("deepstack_visual_indexes")
    if deep:
        projection = merged_over(_projection("merger", merged, out))
        yield from layers("deepstack_merger_list", deep, chain(layer_norm("norm", merged), projection))


def _patches(v: Section, width: int, *channels: str, bias: bool = False) -> Weights:
    side, frames = v.size("patch_size"), v.size("temporal_patch_size")
    yield from whole("patch_embed.proj.weight", width, v.size(*channels), frames, side, side)
    if bias:
        yield from whole("patch_embed.proj.bias", width)


def _projection(name: str, merged: int, out: int) -> Weights:
    yield from column(f"{name}.0", merged, merged)
    yield from row(f"{name}.2", out, merged)
