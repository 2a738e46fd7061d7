"""NVILA's towers: transformers' SigLIP, whole on every rank, and what joins it to a Qwen2: of images at three
sizes, whose answers lie beside each other (srt/models/nvila.py), or of one (nvila_lite.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.siglip import whole_tower
from runtime.server.encoders.weight import Weights, layer_norm, linear, named
from runtime.server.errors import Unsupported

_WIDTH, _SIZES, _QUANTIZED = 1152, 3, "quantization_config"
_MERGED, _MERGED_LITE = 4, 9  # patches, which are beside each other in a row
_JOINER = "mm_projector.layers"


def nvila(hf: Mapping[str, Any], text_width: int) -> Weights:
    yield from _tower(hf)
    joined = _SIZES * _WIDTH * _MERGED
    yield from layer_norm(f"{_JOINER}.1", joined)
    yield from linear(f"{_JOINER}.2", text_width, joined)
    yield from linear(f"{_JOINER}.4", text_width, text_width)


def nvila_lite(hf: Mapping[str, Any], text_width: int) -> Weights:
    yield from _tower(hf)
    joined, inner = _WIDTH * _MERGED_LITE, 3 * _WIDTH
    yield from layer_norm(f"{_JOINER}.1", joined)
    yield from linear(f"{_JOINER}.2", inner, joined)
    yield from layer_norm(f"{_JOINER}.4", inner)
    yield from linear(f"{_JOINER}.5", text_width, inner)
    yield from linear(f"{_JOINER}.7", text_width, text_width)


def _tower(hf: Mapping[str, Any]) -> Weights:
    v, text = Section(hf), Section(hf, "text_config")
    if v.size("hidden_size") != _WIDTH:
        raise Unsupported(
            f"{v.where}hidden_size is {v.size('hidden_size')}: SGLang joins {_WIDTH} alone to NVILA's text"
        )
    if v.get("vision_use_head") is False:
        raise Unsupported(f"{v.where}vision_use_head is False: which tower then has one is not known here")
    if text.get(_QUANTIZED) is not None:
        raise Unsupported(f"{text.where}{_QUANTIZED}: which of NVILA's matrices it means is not known")
    usual = {"num_channels": 3, "vision_use_head": True}
    yield from named("vision_tower", whole_tower(Section(hf, defaults=usual)))
