"""What MiMo-V2.5 sees with, and what it and its ASR make of a sound's codes (srt/models/mimo_vl.py,
mimo_audio.py). What makes the codes is told in a folder of its own, and not counted."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.bounds import WIDTH, check_size
from runtime.server.encoders.section import Section, object_in
from runtime.server.encoders.weight import (
    EAR,
    Weights,
    column,
    layers,
    linear,
    named,
    over_attention_ranks,
    rms_norm,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_SEES = {
    "depth": 28, "hidden_size": 1280, "intermediate_size": 4608, "num_heads": 32, "in_channels": 3,
    "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 2048,
    "fullatt_block_indexes": [7, 15, 23, 31], "qk_channels": 64, "num_key_value_heads": 8,
}  # fmt: skip
_HEARS = {
    "speech_vocab_size": "1025-1025-129-129-129-129-129-129", "group_size": 4, "audio_channels": 8,
    "input_local_layers": 6, "input_local_dim": 1024, "input_local_attn_heads": 64,
    "input_local_head_dim": 16, "input_local_intermediate_size": 4096, "out_hidden_size": 4096,
    "projection_layers": 1, "add_post_norm": False,
}  # fmt: skip
# What else is read of it: how places turn, and how long a sound is.
_HEARD_OTHERWISE = (
    *("tokenizer_version", "speech_zeroemb_idx", "input_full_attention", "input_local_hidden_dropout"),
    *("rope_theta", "partial_rotary_factor", "audio_segment_size"),
)
_IDLE_WORDS = 151936  # transformers' Qwen2Config's: a table that nobody reads


def mimo_v2(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """Where both sections are told, else it is a model of text."""
    if hf.get("vision_config") is None or hf.get("audio_config") is None:
        return
    yield from _tower(Section(hf, defaults=_SEES))
    yield from named(EAR, _listening(Section(hf, "audio_config", _HEARS)))


def mimo_v2_asr(hf: Mapping[str, Any], _text_width: int) -> Weights:
    """srt/models/mimo_v2_asr.py hands all of the section to a class that takes nothing else."""
    told = object_in(hf, "audio_config")
    other = next((name for name in told if name not in (*_HEARS, *_HEARD_OTHERWISE)), None)
    if other is not None:
        raise Unsupported(f"config.json: audio_config: {other[:60]} is told, and SGLang ends at it")
    yield from named(EAR, _listening(Section(hf, "audio_config", _HEARS)))


def _tower(v: Section) -> Weights:
    width, inner, depth = v.size("hidden_size"), v.size("intermediate_size"), v.size("depth")
    side, frames = v.size("patch_size"), v.size("temporal_patch_size")
    yield from whole("patch_embed.proj.weight", width, v.size("in_channels"), frames, side, side)
    yield from layers(
        "blocks",
        depth,
        chain(
            rms_norm("norm1", width),
            rms_norm("norm2", width),
            over_attention_ranks(_attention(v, width)),
            column("mlp.gate_up_proj", 2 * inner, width, units=inner),
            row("mlp.down_proj", width, inner),
        ),
    )
    if v.flag("use_sink"):
        yield from layers("blocks", depth - _unbounded(v, depth), whole("attn.sinks", v.size("num_heads")))
    yield from rms_norm("merger.ln_q", width)
    merged = width * v.size("spatial_merge_size") ** 2
    yield from column("merger.mlp.0", merged, merged)
    yield from row("merger.mlp.2", v.size("out_hidden_size"), merged)


def _attention(v: Section, width: int) -> Weights:
    heads, kv_heads, each = (v.size(name) for name in ("num_heads", "num_key_value_heads", "qk_channels"))
    if heads % kv_heads or width % heads:
        raise ConfigError(
            f"{v.where}{heads} heads need a multiple of them for a width, which is {width}, and of KV heads, "
            f"which are {kv_heads}"
        )
    yield from column("attn.qkv_proj", (heads + 2 * kv_heads) * each, width, units=kv_heads)
    yield from row("attn.proj", width, heads * each, units=heads)


def _unbounded(v: Section, depth: int) -> int:
    """Blocks that see everything, which have none."""
    told = v.get("fullatt_block_indexes")
    if not isinstance(told, list) or not all(type(one) is int for one in told):
        raise ConfigError(
            f"{v.where}fullatt_block_indexes is {repr(told)[:60]}: a list of whole numbers is needed"
        )
    return len({one for one in told if 0 <= one < depth})


def _listening(a: Section) -> Weights:
    width, channels = a.size("input_local_dim"), a.size("audio_channels")
    yield from whole("embed_tokens.weight", _IDLE_WORDS, width)
    yield from layers("layers", a.size("input_local_layers"), _local(a, width))
    if a.flag("add_post_norm"):
        yield from rms_norm("norm", width)
    for number, words in enumerate(_vocabularies(a, channels)):
        yield from whole(f"speech_embeddings.{number}.weight", words, width)
    grouped, out = width * a.size("group_size"), a.size("out_hidden_size")
    steps = a.size("projection_layers")
    if steps > 2:
        raise ConfigError(f"{a.where}projection_layers is {steps}: SGLang has 1 or 2")
    if steps == 1:
        yield from linear("projection", out, grouped, bias=False)
    else:
        yield from linear("projection.mlp.0", 4 * grouped, grouped, bias=False)
        yield from linear("projection.mlp.2", out, 4 * grouped, bias=False)


def _local(a: Section, width: int) -> Weights:
    inner = a.size("input_local_intermediate_size")
    heads = a.size("input_local_attn_heads") * a.size("input_local_head_dim")
    for name in ("q_proj", "k_proj", "v_proj"):
        yield from linear(f"self_attn.{name}", heads, width)
    yield from linear("self_attn.o_proj", width, heads, bias=False)
    for name in ("gate_proj", "up_proj"):
        yield from linear(f"mlp.{name}", inner, width, bias=False)
    yield from linear("mlp.down_proj", width, inner, bias=False)
    yield from rms_norm("input_layernorm", width)
    yield from rms_norm("post_attention_layernorm", width)


def _vocabularies(a: Section, channels: int) -> list[int]:
    """One for all channels, or `one-another-...`."""
    told = a.get("speech_vocab_size")
    words = str(told).split("-") if isinstance(told, str) else [str(told)]
    sizes = [int(one) for one in words if one.isdecimal()]
    if len(sizes) != len(words) or not all(sizes) or len(sizes) not in (1, *range(channels, channels + 64)):
        raise ConfigError(
            f"{a.where}speech_vocab_size is {repr(told)[:60]}: a size, or one a channel, is needed"
        )
    for one in sizes:
        check_size(f"{a.where}speech_vocab_size", one, WIDTH)
    return (sizes * channels)[:channels] if len(sizes) == 1 else sizes[:channels]
