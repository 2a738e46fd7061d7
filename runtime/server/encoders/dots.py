"""The tower of dots.ocr and dots.vlm (srt/models/dots_vlm_vit.py), whose heads are padded to divide over all
ranks, also where those of attention are fewer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from runtime.server.bounds import WIDTH, check_size
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    Weights,
    attention,
    layer_norm,
    layers,
    linear,
    padded_for_all,
    rms_norm,
    vocabulary,
    whole,
)
from runtime.server.errors import ConfigError

# SGLang's DotsVisionConfig (srt/configs/dots_vlm.py).
_DEFAULTS = {
    "embed_dim": 1536, "hidden_size": 1536, "intermediate_size": 4224, "num_hidden_layers": 42,
    "num_attention_heads": 12, "num_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
    "post_norm": True,
}  # fmt: skip


def dots_ocr(hf: Mapping[str, Any], text_width: int) -> Weights:
    """Beside it its class (dots_ocr.py) has a head that nobody asks: that of its text has one, too."""
    yield from _tower(hf)
    yield from vocabulary("lm_head", Section(hf, "").size("vocab_size"), text_width)


def dots_vlm(hf: Mapping[str, Any], _text_width: int) -> Weights:
    if hf.get("vision_config", {}) is None:
        raise ConfigError(
            "config.json: vision_config is None: SGLang's class ends, and takes none that is left out"
        )
    yield from _tower(hf)


def _tower(hf: Mapping[str, Any]) -> Weights:
    v = Section(hf, defaults=_DEFAULTS)
    width, inner, side = v.size("embed_dim"), v.size("intermediate_size"), v.size("patch_size")
    bias, merged = v.flag("use_bias"), width * v.size("spatial_merge_size") ** 2
    check_size("config.json: vision_config: spatial_merge_size", merged, WIDTH)
    yield from whole("patch_embed.patchifier.proj.weight", width, v.size("num_channels"), side, side)
    yield from whole("patch_embed.patchifier.proj.bias", width)
    yield from rms_norm("patch_embed.patchifier.norm", width)
    yield from layers(
        "blocks",
        v.size("num_hidden_layers"),
        chain(
            rms_norm("norm1", width),
            rms_norm("norm2", width),
            padded_for_all(attention(width, v.size("num_attention_heads"), bias, bias, pads=True)),
            linear("mlp.fc1", inner, width, bias),
            linear("mlp.fc2", width, inner, bias),
            linear("mlp.fc3", inner, width, bias),
        ),
    )
    if v.flag("post_norm"):
        yield from rms_norm("post_trunk_norm", width)
    yield from layer_norm("merger.ln_q", width)
    yield from linear("merger.mlp.0", merged, merged)
    yield from linear("merger.mlp.2", v.size("hidden_size"), merged)
