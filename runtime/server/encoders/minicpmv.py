"""MiniCPM-V's SigLIP by Idefics 2's class (srt/models/minicpmv.py, idefics2.py): behind it are a few queries
of what is seen, or windows that are folded twice (minicpmv_vit.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.siglip import patch_embedding, patches, split_layers
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    layer_norm,
    linear,
    named,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_COLOURS = {"num_channels": 3}
# MiniCPMV4_6VisionConfig's and MiniCPMV4_6Config's, in srt/configs/minicpmv4_6.py.
_FOLDED = {
    **_COLOURS, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "image_size": 980, "patch_size": 14,
}  # fmt: skip
_ROUNDS = {"merger_times": 1}
_WINDOW = 4  # patches that are folded into one
_SIDE, _FRAMES, _HEAD = 70, 36000, 128
_IN_TIME = "4.5"


def folded(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Since 4.6."""
    _check_plain(hf)
    v, beside = Section(hf, defaults=_FOLDED), Section(hf, "", _ROUNDS)
    for where, name in ((v, "window_kernel_size"), (beside, "merge_kernel_size")):
        if (told := where.get(name)) not in (None, [2, 2]):
            raise ConfigError(f"{where.where}{name} is {told!r:.60}: SGLang folds two by two")
    width, inner, rounds = v.size("hidden_size"), v.size("intermediate_size"), beside.size("merger_times")
    yield from _tower(v, beside)
    yield from named("vit_merger", attention(width, v.size("num_attention_heads")))
    yield from layer_norm("vit_merger.layer_norm1", width)
    yield from layer_norm("vit_merger.pre_norm", _WINDOW * width)
    yield from column("vit_merger.linear_1", _WINDOW * inner, _WINDOW * width)
    yield from row("vit_merger.linear_2", width, _WINDOW * inner)
    for number in range(rounds):
        made = text_width if number == rounds - 1 else width
        yield from layer_norm(f"merger.{number}.pre_norm", _WINDOW * width)
        yield from column(f"merger.{number}.linear_1", _WINDOW * width, _WINDOW * width)
        yield from row(f"merger.{number}.linear_2", made, _WINDOW * width)


def resampled(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Before. Places of a picture and of a film are kept, as large as the largest may be."""
    if text_width < _HEAD or text_width % (text_width // _HEAD):
        raise ConfigError(f"config.json: hidden_size {text_width} is no multiple of its resampler's heads")
    v, beside = Section(hf, defaults=_COLOURS), Section(hf, "")
    if beside.get("drop_vision_last_layer") is None:
        raise Unsupported(
            "config.json: drop_vision_last_layer is missing: its own class says what it is then"
        )
    yield from _tower(v, beside)
    width, queries = v.size("hidden_size"), beside.size("query_num")
    yield from whole("resampler.query", queries, text_width)
    if width != text_width:
        yield from linear("resampler.kv_proj", text_width, width, bias=False)
    yield from linear("resampler.attn.in_proj", 3 * text_width, text_width)
    yield from linear("resampler.attn.out_proj", text_width, text_width)
    for name in ("ln_q", "ln_kv", "ln_post"):
        yield from layer_norm(f"resampler.{name}", text_width)
    yield from whole("resampler.proj", text_width, text_width)
    yield from whole("resampler.pos_embed", _SIDE, _SIDE, text_width)
    if str(beside.get("version")) == _IN_TIME:
        yield from whole("resampler.temporal_pos_embed", _FRAMES, text_width)


def _tower(v: Section, beside: Section) -> Weights:
    width = v.size("hidden_size")
    yield from patch_embedding(v, width)
    yield from whole("embeddings.position_embedding.weight", patches(v), width)
    yield from split_layers(v, width, beside.flag("drop_vision_last_layer"))


def _check_plain(hf: Mapping[str, Any]) -> None:
    if hf.get("quantization_config") is not None:
        raise Unsupported(
            "config.json: quantization_config: of MiniCPM-V this runtime has what is not quantized alone"
        )
