"""What DeepSeek-OCR and Unlimited-OCR see with: SAM's tower and CLIP's behind it (srt/models).

SGLang's class has one size of each, whatever a file says, and each rank has them whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from runtime.server.decoders.fields import OCR_1, architecture_of, is_ocr_2
from runtime.server.encoders.section import Section
from runtime.server.encoders.weight import Weights, layer_norm, layers, linear, named, rms_norm, whole
from runtime.server.errors import ConfigError, Unsupported

_SAM, _SAM_LAYERS, _SAM_HEADS = 768, 12, 12
_SIDE, _WINDOW, _GLOBAL = 64, 14, [2, 5, 8, 11]
_CLIP, _CLIP_LAYERS, _IMAGE, _PATCH = 1024, 24, 224, 14
_NECK, _WIDER, _WIDEST = 256, 512, 1024
_JOINED = _CLIP + _WIDEST
_QWEN, _QWEN_LAYERS, _QWEN_KEYS, _QWEN_INNER, _QUERIES = 896, 24, 128, 4864, (144, 256)
_OF_SAM = {"layers": _SAM_LAYERS, "width": _SAM, "heads": _SAM_HEADS, "global_attn_indexes": _GLOBAL}
_SECOND: Mapping[str, Mapping[str, Any]] = {"sam_vit_b": _OF_SAM, "qwen2-0-5b": {"dim": _QWEN}}
_TOWERS: Mapping[str, Mapping[str, Any]] = {
    "sam_vit_b": {**_OF_SAM, "downsample_channels": [_WIDER, _WIDEST]},
    "clip-l-14-224": {
        **{"layers": _CLIP_LAYERS, "width": _CLIP, "heads": 16, "image_size": _IMAGE, "patch_size": _PATCH}
    },
}


def deepseek_ocr(hf: Mapping[str, Any], text_width: int) -> Weights:
    """The second one sees by a Qwen2 behind SAM's tower."""
    _check_class(hf)
    yield from _sees(hf, text_width, is_ocr_2(hf))


def unlimited_ocr(hf: Mapping[str, Any], text_width: int) -> Weights:
    """srt/models/unlimited_ocr.py"""
    _check_tiles(hf)
    yield from _sees(hf, text_width, is_second=False)


def _sees(hf: Mapping[str, Any], text_width: int, is_second: bool) -> Weights:
    joined = _QWEN if is_second else _JOINED
    _check_towers(hf, is_second)
    _check_projector(hf, joined, text_width)
    yield from named("sam_model", _sam(_QWEN if is_second else _WIDEST))
    yield from named("qwen2_model", _qwen()) if is_second else named("vision_model", _clip())
    yield from linear("projector.layers", text_width, joined)
    yield from whole("view_seperator", text_width)
    if not is_second:
        yield from whole("image_newline", text_width)


def _check_class(hf: Mapping[str, Any]) -> None:
    """Without this SGLang makes a DeepSeek-VL2 of the file: srt/utils/hf_transformers."""
    own, name = Section(hf, "auto_map").get("AutoModel"), architecture_of(hf)
    if own != OCR_1 and not is_ocr_2(hf):
        raise Unsupported(
            f"config.json: auto_map: AutoModel is {repr(own)[:60]}: by {OCR_1} SGLang knows DeepSeek-OCR"
        )
    if name == "DeepseekVL2ForCausalLM":
        raise Unsupported(f"config.json: architectures names {name}: by its auto_map it is a DeepSeek-OCR")
    _check_tiles(hf)


def _check_tiles(hf: Mapping[str, Any]) -> None:
    if hf.get("tile_tag") != "2D":
        raise ConfigError(f"config.json: tile_tag is {repr(hf.get('tile_tag'))[:60]}: SGLang has '2D' alone")


def _check_towers(hf: Mapping[str, Any], is_second: bool) -> None:
    v = Section(hf)
    name, told = v.get("model_name"), v.get("width")
    if not is_second and str(name).lower() == "deepencoderv2":
        raise Unsupported(f"{v.where}model_name is {name!r}, and auto_map's class is not DeepSeek-OCR 2's")
    towers = _SECOND if is_second else _TOWERS
    for tower, sizes in told.items() if isinstance(told, Mapping) else ():
        known = towers.get(tower)
        if known is None or not isinstance(sizes, Mapping):
            raise Unsupported(f"{v.where}width: {repr(tower)[:60]}: SGLang has {' and '.join(towers)}")
        for size, value in sizes.items():
            if value != known.get(size, value):
                raise Unsupported(
                    f"{v.where}width: {tower}: {size} is {repr(value)[:60]}: SGLang's is {known[size]}"
                )


def _check_projector(hf: Mapping[str, Any], joined: int, text_width: int) -> None:
    joiner = Section(hf, "projector_config")
    for name, known in (("projector_type", "linear"), ("input_dim", joined), ("n_embed", text_width)):
        value = joiner.get(name)
        if value != known:
            raise Unsupported(f"{joiner.where}{name} is {repr(value)[:60]}: here is {known!r}")


def _sam(widest: int) -> Weights:
    yield from linear("patch_embed.proj", _SAM, 3 * 16 * 16)
    yield from whole("pos_embed", _SIDE, _SIDE, _SAM)
    yield from layers("blocks", _SAM_LAYERS, _block(_SAM, "norm", ("attn.qkv", "attn.proj"), "lin"))
    for number in range(_SAM_LAYERS):
        rows = 2 * (_SIDE if number in _GLOBAL else _WINDOW) - 1
        for side in "hw":
            yield from whole(f"blocks.{number}.attn.rel_pos_{side}", rows, _SAM // _SAM_HEADS)
    yield from whole("neck.0.weight", _NECK, _SAM)
    yield from layer_norm("neck.1", _NECK)
    yield from whole("neck.2.weight", _NECK, _NECK, 3, 3)
    yield from layer_norm("neck.3", _NECK)
    for number, (given, wide) in enumerate(pairwise([_NECK, _WIDER, widest]), 2):
        yield from whole(f"net_{number}.weight", wide, given, 3, 3)


def _block(width: int, norm: str, heads: tuple[str, str], inner: str) -> Weights:
    yield from layer_norm(f"{norm}1", width)
    yield from layer_norm(f"{norm}2", width)
    yield from linear(heads[0], 3 * width, width)
    yield from linear(heads[1], width, width)
    yield from linear(f"mlp.{inner}1", 4 * width, width)
    yield from linear(f"mlp.{inner}2", width, 4 * width)


def _clip() -> Weights:
    yield from whole("embeddings.class_embedding", _CLIP)
    yield from whole("embeddings.patch_embedding.weight", _CLIP, 3, _PATCH, _PATCH)
    yield from whole("embeddings.position_embedding.weight", (_IMAGE // _PATCH) ** 2 + 1, _CLIP)
    yield from layer_norm("pre_layrnorm", _CLIP)
    yield from layers(
        "transformer.layers",
        _CLIP_LAYERS,
        _block(_CLIP, "layer_norm", ("self_attn.qkv_proj", "self_attn.out_proj"), "fc"),
    )


def _qwen() -> Weights:
    for side, queries in zip((768, 1024), _QUERIES, strict=True):
        yield from whole(f"query_{side}.weight", queries, _QWEN)
    yield from layers("model.model.layers", _QWEN_LAYERS, _qwen_layer())
    yield from rms_norm("model.model.norm", _QWEN)


def _qwen_layer() -> Weights:
    yield from rms_norm("input_layernorm", _QWEN)
    yield from rms_norm("post_attention_layernorm", _QWEN)
    yield from linear("self_attn.q_proj", _QWEN, _QWEN)
    yield from linear("self_attn.k_proj", _QWEN_KEYS, _QWEN)
    yield from linear("self_attn.v_proj", _QWEN_KEYS, _QWEN)
    yield from linear("self_attn.o_proj", _QWEN, _QWEN, bias=False)
    yield from linear("mlp.gate_proj", _QWEN_INNER, _QWEN, bias=False)
    yield from linear("mlp.up_proj", _QWEN_INNER, _QWEN, bias=False)
    yield from linear("mlp.down_proj", _QWEN, _QWEN_INNER, bias=False)
