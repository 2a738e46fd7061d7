"""InternViT as InternVL has it (srt/models/internvl.py), and Intern-S1 (interns1.py), with dummy heads where
its own do not divide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EncoderWeight,
    Weights,
    attention,
    column,
    layer_norm,
    layers,
    linear,
    rms_norm,
    row,
    whole,
)
from runtime.server.errors import ConfigError

# InternVisionConfig's, in srt/configs/internvl.py, which knows no norm.
_DEFAULTS = {
    "patch_size": 14, "image_size": 224, "hidden_size": 3200, "num_attention_heads": 25,
    "intermediate_size": 12800, "num_hidden_layers": 48, "qk_normalization": True,
}  # fmt: skip
_NORMS: Mapping[str, Callable[[str, int], Weights]] = {"rms_norm": rms_norm, "layer_norm": layer_norm}


# InternS1VisionConfig's, in a file of its checkpoints.
_OF_S1 = {
    "patch_size": 14, "image_size": 448, "hidden_size": 1024, "num_attention_heads": 16,
    "intermediate_size": 4096, "num_hidden_layers": 24, "norm_type": "layer_norm",
}  # fmt: skip


def internvl_chat(hf: Mapping[str, Any], text_width: int) -> Weights:
    return _tower(hf, text_width, Section(hf, defaults=_DEFAULTS))


def interns1(hf: Mapping[str, Any], text_width: int) -> Weights:
    return _tower(hf, text_width, Section(hf, defaults=_OF_S1))


def _tower(hf: Mapping[str, Any], text_width: int, v: Section) -> Weights:
    width, inner, side = v.size("hidden_size"), v.size("intermediate_size"), v.size("patch_size")
    yield from whole("embeddings.class_embedding", 1, 1, width)
    yield from whole("embeddings.patch_embedding.weight", width, 3, side, side)
    yield from whole("embeddings.patch_embedding.bias", width)
    yield from whole("embeddings.position_embedding", 1, (v.size("image_size") // side) ** 2 + 1, width)
    norm = _norm(v)
    yield from layers(
        "encoder.layers",
        v.size("num_hidden_layers"),
        chain(
            norm("norm1", width),
            norm("norm2", width),
            whole("ls1", width),
            whole("ls2", width),
            _attention(v, width),
            column("mlp.fc1", inner, width),
            row("mlp.fc2", width, inner),
        ),
    )
    merged = width * _shrunk(hf) ** 2
    yield from layer_norm("mlp1.0", merged)
    yield from linear("mlp1.1", text_width, merged)
    yield from linear("mlp1.3", text_width, text_width)


def _norm(v: Section) -> Callable[[str, int], Weights]:
    told = v.get("norm_type")
    if told not in _NORMS:
        raise ConfigError(
            f"config.json: vision_config: norm_type is {repr(told)[:60]}: {' or '.join(_NORMS)}"
        )
    return _NORMS[told]


def _attention(v: Section, width: int) -> Weights:
    heads = v.size("num_attention_heads")
    yield from attention(width, heads, v.flag("qkv_bias") or v.flag("attention_bias"), pads=True)
    if v.flag("qk_normalization") or v.flag("use_qk_norm"):
        norm = EncoderWeight(
            "attn.q_norm.weight", (width,), group="attn_tp", units=heads, pads=True, padded=0
        )
        yield from (norm, replace(norm, name="attn.k_norm.weight"))


def _shrunk(hf: Mapping[str, Any]) -> int:
    ratio = hf.get("downsample_ratio", 0.5)
    if not isinstance(ratio, (int, float)) or isinstance(ratio, bool) or not 0 < ratio <= 1:
        raise ConfigError(f"config.json: downsample_ratio is {repr(ratio)[:60]}: above 0 and at most 1")
    return int(1 / ratio)
