"""The perception encoder of Step 3.7 (srt/models/step_3_vl_10b.py, step3p7.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, attention, column, layer_norm, layers, row, whole
from runtime.server.errors import ConfigError

_DEFAULTS = {
    "hidden_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 16, "num_channels": 3,
    "image_size": 728, "patch_size": 14, "mlp_ratio": 8960 / 1536,
}  # fmt: skip


def step3p7(hf: Mapping[str, Any], text_width: int) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width, side = v.size("width", "hidden_size"), v.size("patch_size")
    yield from whole("conv1.weight", width, v.size("num_channels"), side, side)
    yield from whole("positional_embedding", (v.size("image_size") // side) ** 2, width)
    yield from layer_norm("ln_pre", width)
    inner = int(width * _ratio(v))
    yield from layers(
        "transformer.resblocks",
        v.size("layers", "num_hidden_layers"),
        chain(
            layer_norm("ln_1", width),
            layer_norm("ln_2", width),
            whole("ls_1.gamma", width),
            whole("ls_2.gamma", width),
            attention(width, v.size("heads", "num_attention_heads")),
            column("mlp.fc1", inner, width),
            row("mlp.fc2", width, inner),
        ),
    )
    for number, given in ((1, width), (2, 2 * width)):
        yield from whole(f"vit_downsampler{number}.weight", 2 * given, given, 3, 3)
        yield from whole(f"vit_downsampler{number}.bias", 2 * given)
    yield from column("vit_large_projector", text_width, 4 * width, bias=bool(hf.get("projector_bias")))


def _ratio(v: Section) -> float:
    ratio = v.get("mlp_ratio")
    if not isinstance(ratio, (int, float)) or not 0 < ratio < 1000:
        raise ConfigError(f"config.json: vision_config: mlp_ratio is {repr(ratio)[:60]}: a number is needed")
    return ratio
