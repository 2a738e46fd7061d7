"""The tower of Step3; the perception encoder of Step 3.7 and of Step3-VL 10B (srt/models)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    linear,
    over_attention_ranks,
    row,
    whole,
)
from runtime.server.errors import ConfigError, Unsupported

_DEFAULTS = {
    "hidden_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 16, "num_channels": 3,
    "image_size": 728, "patch_size": 14, "mlp_ratio": 8960 / 1536,
}  # fmt: skip
_COLOURS = 3
_ASKED = (
    *("width", "layers", "heads", "image_size", "patch_size", "mlp_ratio", "hidden_act", "output_dim"),
    *("use_abs_posemb", "use_cls_token", "use_rope2d", "use_ln_pre", "use_ln_post", "ls_init_value"),
)


_FIRST = {
    **{"hidden_size": 1792, "intermediate_size": 3072, "output_hidden_size": 4096, "num_hidden_layers": 63},
    **{"num_attention_heads": 16, "num_channels": 3, "image_size": 728, "patch_size": 14},
}


def step3_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    """srt/models/step3_vl.py, whose layers have a matrix behind attention that nobody multiplies by."""
    v = Section(hf, defaults=_FIRST)
    width, side, inner = v.size("hidden_size"), v.size("patch_size"), v.size("intermediate_size")
    given = v.size("output_hidden_size")
    yield from whole("class_embedding", width)
    yield from whole("patch_embedding.weight", width, v.size("num_channels"), side, side)
    yield from whole("patch_embedding.bias", width)
    yield from whole("position_embedding", (v.size("image_size") // side) ** 2 + 1, width)
    parts = (
        *(layer_norm("layer_norm1", width), layer_norm("layer_norm2", width)),
        *(row("out_proj", width, width), attention(width, v.size("num_attention_heads"))),
        over_attention_ranks(column("mlp.fc1", inner, width)),
        over_attention_ranks(row("mlp.fc2", width, inner)),
    )
    yield from layers("transformer.layers", v.size("num_hidden_layers"), chain(*parts))
    for number, (out, into, kernel) in enumerate(((given, width, 2), (2 * given, given, 3))):
        yield from whole(f"vit_downsampler{number}.weight", out, into, kernel, kernel)
        yield from whole(f"vit_downsampler{number}.bias", out)
    is_biased = hf.get("projector_bias")
    yield from linear("vit_large_projector", text_width, 2 * given, is_biased is None or bool(is_biased))


def step3p7(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width, side = v.size("width", "hidden_size"), v.size("patch_size")
    yield from whole("conv1.weight", width, v.size("num_channels"), side, side)
    yield from whole("positional_embedding", (v.size("image_size") // side) ** 2, width)
    yield from layer_norm("ln_pre", width)
    yield from _blocks(v, width, scales=True)
    yield from _joined(hf, width, text_width)


def step_vl(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Its class is in a file of its checkpoints: what SGLang reads of it is told."""
    v = Section(hf)
    missing = [name for name in _ASKED if name not in (hf.get("vision_config") or {})]
    if missing or "projector_bias" not in hf:
        raise Unsupported(f"{v.where}{(*missing, 'projector_bias')[0]} is missing: SGLang asks for it")
    if not v.flag("use_rope2d"):
        raise ConfigError(f"{v.where}use_rope2d is {v.get('use_rope2d')!r:.60}: SGLang has no other tower")
    width, side, first = v.size("width"), v.size("patch_size"), v.flag("use_cls_token")
    yield from whole("conv1.weight", width, _COLOURS, side, side)
    for name in ("ln_pre", "ln_post"):
        yield from layer_norm(name, width) if v.flag(f"use_{name}") else ()
    yield from whole("class_embedding", width) if first else ()
    if v.flag("use_abs_posemb"):
        yield from whole("positional_embedding", int(first) + (v.size("image_size") // side) ** 2, width)
    yield from _blocks(v, width, scales=v.get("ls_init_value") is not None)
    yield from _joined(hf, width, text_width)


def _blocks(v: Section, width: int, scales: bool) -> Weights:
    inner = int(width * _ratio(v))
    scaled = (whole(f"{name}.gamma", width) for name in ("ls_1", "ls_2") if scales)
    yield from layers(
        "transformer.resblocks",
        v.size("layers", "num_hidden_layers"),
        chain(
            layer_norm("ln_1", width),
            layer_norm("ln_2", width),
            *scaled,
            attention(width, v.size("heads", "num_attention_heads")),
            column("mlp.fc1", inner, width),
            row("mlp.fc2", width, inner),
        ),
    )


def _joined(hf: Mapping[str, Any], width: int, text_width: int) -> Weights:
    for number, given in ((1, width), (2, 2 * width)):
        yield from whole(f"vit_downsampler{number}.weight", 2 * given, given, 3, 3)
        yield from whole(f"vit_downsampler{number}.bias", 2 * given)
    yield from column("vit_large_projector", text_width, 4 * width, bias=bool(hf.get("projector_bias")))


def _ratio(v: Section) -> float:
    ratio = v.get("mlp_ratio")
    if not isinstance(ratio, (int, float)) or not 0 < ratio < 1000:
        raise ConfigError(f"config.json: vision_config: mlp_ratio is {repr(ratio)[:60]}: a number is needed")
    return ratio
