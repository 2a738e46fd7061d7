"""What Muse Spark sees and hears with (srt/layers/muse_spark, models/muse_spark_omni.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.decoders.fields import checked_number
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import (
    EAR,
    Weights,
    block,
    column,
    layer_norm,
    layers,
    linear,
    named,
    rms_norm,
    row,
    whole,
)
from runtime.server.errors import ConfigError

_SEES = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 50, "num_attention_heads": 16,
    "patch_size": 14, "patch_temporal": 2, "pos_emb_height": 32, "pos_emb_width": 32,
}  # fmt: skip
_HEARS = {
    "conv_kernel_size": 7, "depths": [2, 2, 2, 2], "hidden_sizes": [256, 512, 1024, 2048], "mlp_ratio": 4.0,
    "out_hidden_size": 8192, "patch_sizes": [16, 6, 5, 4],
}  # fmt: skip
_BESIDE = {"out_hidden_size": 6144, "projector_hidden_size": 4096}
_COLOURS, _WIDEST = 3, 1 << 10


def muse_spark(hf: Mapping[str, Any], text_width: int) -> Weights:
    beside = Section(hf, "", _BESIDE)
    joined = beside.size("projector_hidden_size")
    yield from named("vision_tower", _tower(Section(hf, defaults=_SEES)))
    yield from column("vision_adapter.fc1", joined, beside.size("out_hidden_size"), bias=False)
    yield from row("vision_adapter.fc2", joined, joined, bias=False)
    yield from row("vision_projection", text_width, joined, bias=False)
    yield from named(EAR, _ear(Section(hf, "audio_config", _HEARS)))


def _tower(v: Section) -> Weights:
    width, inner, heads = v.size("hidden_size"), v.size("intermediate_size"), v.size("num_attention_heads")
    taken = v.size("patch_temporal") * _COLOURS * v.size("patch_size") ** 2
    yield from column("patch_embedder.patch_embedding", width, taken, bias=False)
    places = v.size("pos_emb_height") * v.size("pos_emb_width")
    yield from whole("patch_embedder.position_embedding_table.weight", places, width)
    for norm in ("ln_pre", "ln_post"):
        yield from layer_norm(norm, width)
    yield from layers("layers", v.size("num_hidden_layers"), block(width, heads, inner))


def _ear(a: Section) -> Weights:
    kernel, given = a.size("conv_kernel_size"), 1
    ratio = checked_number(f"{a.where}mlp_ratio", a.get("mlp_ratio"))
    if not 0 < ratio < _WIDEST:
        raise ConfigError(f"{a.where}mlp_ratio is {ratio}: a number above 0 is needed")
    told = [_sizes(a, name) for name in ("patch_sizes", "hidden_sizes", "depths")]
    for number, (patch, width, depth) in enumerate(zip(*told, strict=False)):
        yield from linear(f"layers.{number}.patch_embedder.proj", width, given * patch)
        yield from rms_norm(f"layers.{number}.patch_embedder.norm", width)
        yield from layers(f"layers.{number}.conv_blocks", depth, _block(width, int(width * ratio), kernel))
        given = width
    yield from rms_norm("norm", given)
    yield from linear("proj", a.size("out_hidden_size"), given)
    yield from rms_norm("post_proj_norm", a.size("out_hidden_size"))


def _block(width: int, inner: int, kernel: int) -> Weights:
    yield from whole("conv.weight", width, 1, kernel)
    yield from whole("conv.bias", width)
    yield from rms_norm("norm", width)
    yield from linear("mlp.fc1", inner, width)
    yield from linear("mlp.fc2", width, inner)


def _sizes(a: Section, name: str) -> list[int]:
    listed = a.get(name)
    if not isinstance(listed, list) or not all(type(one) is int and 0 < one < 1 << 20 for one in listed):
        raise ConfigError(f"{a.where}{name} is {listed!r:.60}: a list of positive whole numbers is needed")
    return listed
