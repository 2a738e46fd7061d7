"""What MiDashengLM hears with: layers that attention's ranks share, behind patches of a spectrogram
(srt/models/midashenglm.py). What makes that is kept beside its weights, in the model's dtype."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.decoders.fields import checked_number
from runtime.server.encoders.section import Section, object_in
from runtime.server.encoders.weight import (
    EAR,
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    named,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_AUDIO, _JOINER = "audio_encoder_config", "audio_projector"


def midasheng(hf: Mapping[str, Any], text_width: int) -> Weights:
    _plain_rope(object_in(hf, "text_config"))
    a = Section(hf, _AUDIO)
    width, bands = a.size("embed_dim"), a.size("n_mels")
    yield from named(EAR, chain(_spectrogram(a, bands), _patches(a, width, bands), _layers(a, width)))
    joined = width * Section(hf, "").size("subsample_factor")
    yield from column(f"{_JOINER}.fc1", text_width, joined, bias=False)
    yield from row(f"{_JOINER}.fc2", text_width, text_width, bias=False)


def _plain_rope(text: Mapping[str, Any]) -> None:
    for name in ("rope_scaling", "rope_parameters"):
        told, theta = text.get(name) or {}, text.get("rope_theta")
        plain = {"rope_type": "default", "type": "default", "rope_theta": theta}
        is_plain = isinstance(told, Mapping) and all(
            name == "mrope_section" or (name in plain and value == plain[name])
            for name, value in told.items()
        )
        if not is_plain:
            raise Unsupported(
                f"config.json: text_config: {name} is {told!r:.60}: this runtime knows a plain one"
            )


def _spectrogram(a: Section, bands: int) -> Weights:
    yield from whole("front_end.spectrogram_window", a.size("win_length"))
    yield from whole("front_end.melscale_fbanks", a.size("n_fft") // 2 + 1, bands)
    for name in ("weight", "bias", "running_mean", "running_var"):
        yield from whole(f"init_bn.{name}", bands)


def _patches(a: Section, width: int, bands: int) -> Weights:
    high, long = _pair(a, "patch_size")
    down, along = _pair(a, "patch_stride")
    yield from whole("patch_embed.proj.weight", width, a.size("input_channels"), high, long)
    yield from whole("patch_embed.proj.bias", width)
    yield from whole("time_pos_embed", 1, width, 1, a.size("target_length") // along)
    yield from whole("freq_pos_embed", 1, width, bands // down, 1)


def _layers(a: Section, width: int) -> Weights:
    heads, ratio = a.size("num_heads"), checked_number(f"{a.where}mlp_ratio", a.get("mlp_ratio"))
    if width % heads:
        raise ConfigError(f"{a.where}{width} cannot be divided among {heads} heads")
    inner = int(width * ratio)
    if inner < 1:
        raise ConfigError(f"{a.where}mlp_ratio is {ratio!r:.60}: MLPs of {width} are then of nothing")
    scales = ("ls1.gamma", "ls2.gamma") if a.flag("init_values") else ()
    each = chain(
        layer_norm("norm1", width),
        layer_norm("norm2", width),
        attention(width, heads, qkv_bias=a.flag("qkv_bias")),
        column("mlp.fc1", inner, width),
        row("mlp.fc2", width, inner),
        *(whole(name, width) for name in scales),
    )
    yield from layers("blocks", a.size("depth"), each)
    yield from layer_norm("norm", width)


def _pair(a: Section, name: str) -> tuple[int, int]:
    """Of bands and of time; one number is both."""
    told = a.get(name)
    if not isinstance(told, list):
        return a.size(name), a.size(name)
    if len(told) != 2:
        raise ConfigError(f"{a.where}{name} is {told!r:.60}: two numbers are needed")
    first, second = (Section({name: one}, "").size(name) for one in told)
    return first, second
