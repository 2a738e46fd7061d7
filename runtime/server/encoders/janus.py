"""What Janus Pro sees with, timm's SigLIP of one size whose heads ranks share, and what it draws with, a VQ
of one size, whole on each rank (srt/models/deepseek_janus_pro.py): no server draws, and none reads its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.section import Section, known_section, object_in
from runtime.server.encoders.timm_siglip import TimmSiglip
from runtime.server.encoders.weight import Weights, layer_norm, linear, named, whole
from runtime.server.errors import ConfigError, Unsupported

HF = Mapping[str, Any]

_WIDTH, _INNER, _LAYERS, _HEADS, _PATCH = 1024, 4096, 24, 16, 16
_SEES = {
    "model_name": ("siglip_large_patch16_384",),
    "select_layer": (-1,),
    "select_feature": ("same",),
}
_JOINS = {"projector_type": ("mlp_gelu",), "depth": (2,)}
_CLASSES = {
    "vision_config": "CLIPVisionTower",
    "aligner_config": "MlpProjector",
    "gen_vision_config": "VQ-16",
    "gen_aligner_config": "MlpProjector",
    "gen_head_config": "vision_head",
}
_CHANNELS, _TIMES, _CODES, _CODE, _BETWEEN = 128, (1, 1, 2, 2, 4), 16384, 8, 256
_USED = 65536


def janus(hf: HF, text_width: int) -> Weights:
    parts = {name: _part(hf, name, served_by) for name, served_by in _CLASSES.items()}
    v = known_section(parts["vision_config"], "params", _SEES, ("image_size",))
    yield from named("vision_model.vision_tower", _siglip(v))
    yield from named("aligner", _joined(parts["aligner_config"], _WIDTH, text_width))
    yield from named("gen_vision_model", _vq())
    yield from named("gen_aligner", _joined(parts["gen_aligner_config"], _CODE, text_width))
    names = ("image_token_embed", "image_token_size", "n_embed")
    head = known_section(parts["gen_head_config"], "params", {}, names)
    inner = head.size("image_token_embed")
    yield from linear("gen_head.output_mlp_projector", inner, head.size("n_embed"))
    yield from linear("gen_head.vision_head", head.size("image_token_size"), inner)
    drawn = known_section(parts["gen_vision_config"], "params", {}, ("image_token_size", "n_embed"))
    yield from whole("gen_embed.weight", drawn.size("image_token_size"), drawn.size("n_embed"))


def _part(hf: HF, name: str, served_by: str) -> HF:
    found = object_in(hf, name)
    if found.get("cls") != served_by:
        raise Unsupported(f"config.json: {name}: cls is {found.get('cls')!r:.60}: here is {served_by!r}")
    return found


def _joined(part: HF, read: int, text_width: int) -> Weights:
    joiner = known_section(part, "params", _JOINS, ("input_dim", "n_embed"))
    for name, size in {"input_dim": read, "n_embed": text_width}.items():
        if joiner.size(name) != size:
            raise Unsupported(f"{joiner.where}{name} is {joiner.size(name)}: {size} are there")
    yield from linear("layers.0", text_width, read)
    yield from linear("layers.2", text_width, text_width)


def _siglip(v: Section) -> Weights:
    side = v.size("image_size") // _PATCH
    if not side:
        raise ConfigError(f"{v.where}image_size is {v.size('image_size')}: no patch of {_PATCH} fits")
    return TimmSiglip(_WIDTH, _INNER, _LAYERS, _PATCH, _HEADS).weights(side * side)


def _vq() -> Weights:
    """Pictures are halved and doubled by level; in the last, patches see each other."""
    yield from named("encoder", _halved())
    yield from named("decoder", _doubled())
    yield from whole("quantize.embedding.weight", _CODES, _CODE)
    yield from whole("quantize.codebook_used", _USED)
    yield from _convolution("quant_conv", _CODE, _BETWEEN, 1)
    yield from _convolution("post_quant_conv", _BETWEEN, _CODE, 1)


def _halved() -> Weights:
    yield from _convolution("conv_in", _CHANNELS, 3)
    read, last = _CHANNELS, len(_TIMES) - 1
    for level, times in enumerate(_TIMES):
        yield from named(f"conv_blocks.{level}", _level(read, times * _CHANNELS, 2, level == last))
        read = times * _CHANNELS
        if level != last:
            yield from _convolution(f"conv_blocks.{level}.downsample.conv", read, read)
    yield from _middle(read)
    yield from layer_norm("norm_out", read)
    yield from _convolution("conv_out", _BETWEEN, read)


def _doubled() -> Weights:
    read, last = _TIMES[-1] * _CHANNELS, len(_TIMES) - 1
    yield from _convolution("conv_in", read, _BETWEEN)
    yield from _middle(read)
    for number, times in enumerate(reversed(_TIMES)):
        yield from named(f"conv_blocks.{number}", _level(read, times * _CHANNELS, 3, number == 0))
        read = times * _CHANNELS
        if number != last:
            yield from _convolution(f"conv_blocks.{number}.upsample.conv", read, read)
    yield from layer_norm("norm_out", read)
    yield from _convolution("conv_out", 3, read)


def _level(read: int, made: int, count: int, attends: bool) -> Weights:
    for number in range(count):
        yield from named(f"res.{number}", _residual(made if number else read, made))
        if attends:
            yield from named(f"attn.{number}", _seen(made))


def _middle(width: int) -> Weights:
    yield from named("mid.0", _residual(width, width))
    yield from named("mid.1", _seen(width))
    yield from named("mid.2", _residual(width, width))


def _residual(read: int, made: int) -> Weights:
    yield from layer_norm("norm1", read)
    yield from _convolution("conv1", made, read)
    yield from layer_norm("norm2", made)
    yield from _convolution("conv2", made, made)
    if read != made:
        yield from _convolution("nin_shortcut", made, read, 1)


def _seen(width: int) -> Weights:
    yield from layer_norm("norm", width)
    for name in ("q", "k", "v", "proj_out"):
        yield from _convolution(name, width, width, 1)


def _convolution(name: str, made: int, read: int, side: int = 3) -> Weights:
    yield from whole(f"{name}.weight", made, read, side, side)
    yield from whole(f"{name}.bias", made)
