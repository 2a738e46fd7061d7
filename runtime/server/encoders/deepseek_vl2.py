"""What DeepSeek-VL2 sees with: timm's SigLIP of one size, whole on each rank (srt/models/deepseek_vl2.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.server.encoders.section import Section
from runtime.server.encoders.timm_siglip import TimmSiglip
from runtime.server.encoders.weight import Weights, linear, named, whole
from runtime.server.errors import ConfigError, Unsupported

_WIDTH, _INNER, _LAYERS, _PATCH, _PATCHES = 1152, 4304, 27, 14, 27**2
_SEES = {
    "model_name": ("siglip_so400m_patch14_384", "vit_so400m_patch14_siglip_384.webli"),
    **{"width": (_WIDTH,), "layers": (_LAYERS,), "heads": (16,), "patch_size": (_PATCH,)},
    **{"mlp_ratio": (3.7362,), "image_size": (384,)},
}
# SGLang's DeepseekVL2MlpProjectorConfig (srt/configs/deepseekvl2.py)
_JOINS = {
    **{"projector_type": "downsample_mlp_gelu", "input_dim": _WIDTH, "n_embed": 2048, "depth": 2},
    **{"mlp_ratio": 1, "downsample_ratio": 2, "token_pooling": False},
}


def deepseek_vl2(hf: Mapping[str, Any], text_width: int) -> Weights:
    _check(hf, text_width)
    yield from named("vision", TimmSiglip(_WIDTH, _INNER, _LAYERS, _PATCH).weights(_PATCHES))
    yield from linear("projector.layers.0", text_width, 4 * _WIDTH)
    yield from linear("projector.layers.2", text_width, text_width)
    yield from whole("image_newline", text_width)
    yield from whole("view_seperator", text_width)


def _check(hf: Mapping[str, Any], text_width: int) -> None:
    if hf.get("tile_tag") != "2D":
        raise ConfigError(f"config.json: tile_tag is {repr(hf.get('tile_tag'))[:60]}: SGLang has '2D' alone")
    v, joiner = Section(hf), Section(hf, "projector_config", _JOINS)
    for name, known in _SEES.items():
        if v.get(name) not in (None, *known):
            raise Unsupported(f"{v.where}{name} is {repr(v.get(name))[:60]}: SGLang's is {known[0]!r}")
    for name, only in {**_JOINS, "n_embed": text_width}.items():
        if joiner.get(name) != only:
            raise Unsupported(f"{joiner.where}{name} is {repr(joiner.get(name))[:60]}: here is {only!r}")
